# ruff: noqa: E501, RET504
"""Compile mode: what the callback is told, what it may answer, and how replacements run."""

import sys
import traceback

import pytest

from fxstack_capture import native
from fxstack_capture.native import RUN, SKIP, Entry, run_with


def test_callback_sees_arguments(replacer):
    def f(a, b=2, /, *args, k, kk=5, **kw): ...

    replacer(f, 1, 4, 5, 6, k=7, z=9)
    assert replacer.asked == [("f", dict(a=1, b=4, args=(5, 6), k=7, kk=5, kw={"z": 9}), ())]


def test_callback_sees_cells(replacer):
    x, y = 1, [2]

    def f(a):
        return a + x + y[0]

    assert replacer(f, 1) == 4
    ((_name, local_values, cells),) = replacer.asked
    assert local_values == {"a": 1}
    assert cells == f.__closure__


def test_replacement_runs_with_the_same_arguments(replacer):
    def f(a, b=2, *args, k, kk=5, **kw):
        return "old"

    def g(a, b=2, *args, k, kk=5, **kw):
        more = [i for i in range(3)]
        last = more[-1] + len(more)
        return (a, b, args, k, kk, kw, last)

    replacer.replace(f, g)
    assert replacer(f, 1, k=3) == (1, 2, (), 3, 5, {}, 5)
    assert replacer(f, 1, 4, 5, 6, k=7, kk=8, z=9) == (1, 4, (5, 6), 7, 8, {"z": 9}, 5)
    assert replacer.names_asked().count("f") == 1


def test_arguments_that_are_cells_in_either(replacer):
    def plain(a, b):
        return a * 100 + b

    def celled(a, b):
        c = 7
        return (lambda: a * 10 + b + c)()

    def f(a, b):
        return (lambda: a + b)()

    def g(a, b):
        return a + b

    def h(a, b):
        return (lambda: a + b)()

    replacer.replace(f, plain).replace(g, celled).replace(h, celled)
    assert (replacer(f, 1, 2), replacer(g, 1, 2), replacer(h, 1, 2)) == (102, 19, 19)


def test_closures_belong_to_the_called_function(replacer):
    def make(x):
        y = [x]

        def f(a):
            nonlocal x
            x += a
            return ("old", x, y)

        def g(a):
            nonlocal x
            x += 10 * a
            z = 3
            return (x, y, (lambda: z + a)())

        return f, g

    f1, g1 = make(1)
    f2, _ = make(100)
    replacer.replace(f1, g1)
    assert replacer(f1, 1) == (11, [1], 4)
    assert replacer(f1, 1) == (21, [1], 4)
    assert replacer(f2, 2) == (120, [100], 5)


def test_methods_properties_and_slots(replacer):
    class Base:
        def m(self):
            return 1

    class C(Base):
        def m(self):
            return super().m() + 1

        @property
        def p(self):
            return 5

        def __getattr__(self, name):
            return name

        def __len__(self):
            return 3

    class D(Base):
        def m(self):
            q = super().m()
            return q + 100

        def p(self):
            return 50

        def __len__(self):
            k = 4
            return k

    for name in ("m", "__len__"):
        replacer.replace(vars(C)[name], vars(D)[name])
    replacer.replace(C.p.fget, D.p)

    def use(c):
        return [(c.m(), c.p, len(c), c.other) for _ in range(60)]

    assert set(replacer(use, C())) == {(101, 50, 4, "other")}


def test_generators_and_coroutines_are_not_offered(replacer):
    def g(n):
        for i in range(n):
            yield i

    async def co():
        return 5

    async def ag():
        yield 1

    def use():
        c = co()
        try:
            c.send(None)
        except StopIteration as stop:
            result = stop.value
        it = g(2)
        next(it)
        with pytest.raises(ValueError):
            it.throw(ValueError("x"))
        ag()
        return list(g(3)), result, sum(i for i in range(4))

    assert replacer(use) == ([0, 1, 2], 5, 6)
    assert not {"g", "co", "ag", "<genexpr>"} & set(replacer.names_asked())


def test_calls_inside_generators_are_offered(replacer):
    def inner(x):
        return x

    def inner2(x):
        return -x

    def g():
        yield inner(1)

    replacer.replace(inner, inner2)
    assert replacer(lambda: list(g())) == [-1]


def test_class_and_module_bodies_are_not_offered(replacer):
    def f():
        class C:
            x = 1

        return exec("y = 2", {}), C.x

    assert replacer(f) == (None, 1)
    assert "C" not in replacer.names_asked()
    assert "<module>" not in replacer.names_asked()


def test_skip_is_for_ever_run_for_once():
    answers = {"f": SKIP, "g": RUN}
    asked = []

    def f(): ...
    def g(): ...

    def both():
        f(), g(), f(), g()

    def callback(func, *_):
        asked.append(func.__name__)
        return answers.get(func.__name__, RUN)

    run_with(callback, native.Owner(), both)
    assert asked == ["both", "f", "g", "g"]


def test_skip_belongs_to_the_owner():
    def f():
        return 1

    asked = []

    def callback(func, *_):
        asked.append(func)
        return SKIP

    for owner in (native.Owner(), native.Owner()):
        run_with(callback, owner, f)
        run_with(callback, owner, f)
    assert len(asked) == 2


def test_owners_have_their_own_entries(replacer):
    def f():
        return 0

    def g():
        return 1

    def h():
        return 2

    other = type(replacer)()
    replacer.replace(f, g)
    other.replace(f, h)
    assert [replacer(f), other(f), replacer(f), other(f), f()] == [1, 2, 1, 2, 0]
    assert len(native.entries(f.__code__)) == 2
    assert len(native.entries(f.__code__, replacer.owner)) == 1


def test_callback_exception_is_the_frames(replacer):
    def f(a):
        return a

    def caller(a):
        try:
            return f(a)
        except LookupError as error:
            return error.args

    def fail(*_):
        raise LookupError("no")

    replacer.answer(f, fail)
    for _ in range(100):
        assert replacer(caller, object()) == ("no",)


def test_callback_must_answer_properly(replacer):
    def f(): ...

    replacer.answer(f, lambda *_: 5)
    with pytest.raises(TypeError, match="must return an Entry, SKIP or RUN, not int"):
        replacer(f)


def test_entry_that_does_not_fit(replacer):
    def f(a): ...
    def g(a, b): ...

    replacer.replace(f, g)
    with pytest.raises(ValueError, match="does not fit.*f: co_argcount differs"):
        replacer(f, 1)


def test_modes_are_off_in_the_callback(replacer):
    def inner(x):
        return x

    def f(a):
        return inner(a)

    def answer(func, code, local_values, cells):
        assert native.mode() == "off"
        assert inner(1) == 1
        nested = type(replacer)().replace(inner, lambda x: x + 1000)
        assert nested(inner, 1) == 1001
        assert native.mode() == "off"
        return Entry(replacer.owner, None, g.__code__)

    def g(a):
        return a, inner

    replacer.answer(f, answer)
    assert replacer(f, 5) == (5, inner)
    assert native.mode() == "off"


def test_exceptions_have_the_replacements_lines(replacer):
    state = []

    def f(a):
        try:
            return g(a)
        finally:
            state.append("left")

    def g(a):
        raise ValueError(a)

    def ng(a):
        b = a
        c = b
        raise KeyError(c)

    replacer.replace(g, ng)
    for _ in range(3):
        with pytest.raises(KeyError) as caught:
            replacer(f, 1)
    frames = [(fr.f_code.co_name, line) for fr, line in traceback.walk_tb(caught.tb)]
    assert frames[-2][0] == "f"
    assert frames[-1] == ("ng", ng.__code__.co_firstlineno + 3)
    innermost = list(traceback.walk_tb(caught.tb))[-1][0]
    assert innermost.f_locals == {"a": 1, "b": 1, "c": 1}
    assert state == ["left"] * 3


def test_frames_outlive_their_call(replacer):
    def f(a):
        return 0

    def g(a):
        b = a + 1
        return sys._getframe()

    replacer.replace(f, g)
    frames = [replacer(f, i) for i in range(5)]
    assert [frame.f_locals["b"] for frame in frames] == [1, 2, 3, 4, 5]
    assert frames[0].f_code is g.__code__


def test_depth_of_the_stack_is_unchanged(replacer):
    def depth():
        n, frame = 0, sys._getframe(1)
        while frame:
            n, frame = n + 1, frame.f_back
        return n

    def f(a):
        return depth()

    def g(a):
        z = 1
        return depth()

    replacer.replace(f, g)
    assert replacer(f, 1) == replacer.plainly(f, 1)


def test_replacement_larger_than_the_data_stack_has_room_for(replacer):
    source = "def g(a):\n" + "".join(f"  v{i} = a\n" for i in range(900)) + "  return v0 + v899\n"
    namespace = {}
    exec(source, namespace)

    def f(a):
        return 0

    def deep(k):
        return f(21) if k == 0 else deep(k - 1)

    replacer.replace(f, namespace["g"])
    assert {replacer(deep, k) for k in range(300)} == {42}


def test_shadow_call_of_every_kind_of_parameter(replacer):
    """The first frame was made before the original's frame size grew: no room is certain only at chunk ends."""
    body = "".join(f"  v{i} = x\n" for i in range(3000))
    namespace = {}
    source = f"def make():\n c = 7\n def g(a, b=2, *args, k=3, **kw):\n  x = c\n{body}  return a, b, args, k, kw, v2999\n return g"
    exec(source.replace("\n  ", "\n    ").replace("    x = c", "    x = c"), namespace)

    def make():
        c = 7

        def f(a, b=2, *args, k=3, **kw):
            return c

        return f

    f, g = make(), namespace["make"]()
    before = native.stats()["shadow_calls"]
    replacer.replace(f, g)
    assert replacer(f, 1, 4, 5, k=6, z=8) == (1, 4, (5,), 6, {"z": 8}, 7)
    assert replacer(f, 1) == (1, 2, (), 3, {}, 7)
    assert native.stats()["shadow_calls"] >= before
