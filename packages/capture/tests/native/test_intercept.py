# ruff: noqa: PTH120
"""Intercept mode: frames that C code starts come back to the callback."""

import functools
import os.path
import threading

import pytest

from fxstack_capture import native
from fxstack_capture.native import Passthrough, intercept, never_intercept


def describe(func, args, kwargs):
    return func.__name__, args, kwargs


def str_of(x): ...


def test_arguments_are_rebuilt():
    def f(a, b=2, /, c=3, *rest, k, kk=5, **kw): ...

    assert intercept(describe, f, (1,), {"k": 6}) == ("f", (1, 2, 3), {"k": 6, "kk": 5})
    expected = ("f", (1, 4, 5, 7, 8), {"k": 6, "kk": 9, "z": 10})
    assert intercept(describe, f, (1, 4, 5, 7, 8), {"k": 6, "kk": 9, "z": 10}) == expected


def test_kwargs_named_like_positional_only_parameters():
    def f(a, /, **kw): ...

    assert intercept(describe, f, (1,), {"a": 2}) == ("f", (1,), {"a": 2})


def test_callbacks_from_c_code():
    assert intercept(lambda f, a, k: -a[0], sorted, ([3, 1, 2],), {"key": lambda v: v}) == [3, 2, 1]
    assert intercept(lambda f, a, k: a[0] * a[1], functools.reduce, (lambda x, y: 0, [1, 2, 3, 4])) == 24
    assert intercept(describe, list, (map(str_of, [1]),)) == [("str_of", (1,), {})]


def test_special_methods():
    class C:
        def __len__(self): ...
        def __eq__(self, other): ...
        def __hash__(self): ...

        @property
        def p(self): ...

    c = C()
    answers = {"__len__": 7, "__eq__": True, "__hash__": 12, "p": "property"}

    def callback(func, args, kwargs):
        assert args[0] is c
        return answers[func.__name__]

    assert intercept(callback, len, (c,)) == 7
    assert intercept(callback, hash, (c,)) == 12
    assert intercept(callback, [1, c].count, (5,)) == 1
    assert intercept(callback, getattr, (c, "p")) == "property"


def test_constructors():
    class C:
        def __init__(self, x): ...

    made = []

    def callback(func, args, kwargs):
        made.append((func.__name__, args[1:]))

    c = intercept(callback, C, (5,))
    assert type(c) is C
    assert made == [("__init__", (5,))]


def test_calls_of_generator_functions():
    def g(n):
        yield n

    async def co(n): ...

    async def ag(n):
        yield n

    for fn in (g, co, ag):
        assert intercept(describe, fn, (1,)) == (fn.__name__, (1,), {})
    assert intercept(lambda f, a, k: iter([a[0]] * 2), list, (map(list, map(g, [1, 2])),)) == [[1, 1], [2, 2]]


def test_real_generators_run_and_their_calls_are_intercepted():
    def inner(x): ...

    def g():
        yield inner(1)

    assert intercept(lambda f, a, k: (f.__name__, a), list, (g(),)) == [("inner", (1,))]


def test_class_bodies_run():
    source = compile("class C:\n  x = 1", "m", "exec")
    namespace = {}
    intercept(describe, exec, (source, namespace))
    assert namespace["C"].x == 1


def test_exceptions_come_through():
    def fail(func, args, kwargs):
        raise LookupError("from the callback")

    with pytest.raises(LookupError, match="from the callback"):
        intercept(fail, sorted, ([1, 2],), {"key": lambda v: v})
    assert native.mode() == "off"


def test_base_exceptions_come_through():
    class Break(BaseException): ...

    def fail(func, args, kwargs):
        raise Break

    with pytest.raises(Break):
        intercept(fail, functools.reduce, (lambda x, y: 0, [1, 2]))


def test_mode_is_off_in_the_callback_and_on_again_after():
    modes = []

    def callback(func, args, kwargs):
        modes.append(native.mode())
        return (lambda: args[0])()  # runs for real

    assert intercept(callback, list, (map(lambda x: x, [1, 2]),)) == [1, 2]
    assert modes == ["off", "off"]


def test_nested_intercepts():
    def outer(func, args, kwargs):
        return intercept(lambda f, a, k: a[0] + 1, list, (map(lambda x: x, [args[0]]),))

    assert intercept(outer, list, (map(lambda x: x, [1, 5]),)) == [[2], [6]]


def test_compile_mode_stays_off_within():
    owner = native.Owner()
    asked = []

    def callback(func, code, local_values, cells):
        asked.append(func.__name__)
        result = intercept(lambda f, a, k: a[0] + 1, list, (map(lambda x: x, [1]),))
        assert result == [2]
        return native.SKIP

    def f():
        return "ran"

    assert native.run_with(callback, owner, f) == "ran"
    assert asked == ["f"]


def test_never_intercept():
    def inner(x):
        return x

    def transparent(x):
        return inner(x), "ran"

    never_intercept(transparent.__code__)
    assert intercept(describe, transparent, (1,)) == (("inner", (1,), {}), "ran")


def test_passthrough_turns_everything_off_until_it_returns():
    source = os.path.commonprefix([__file__, os.path.dirname(__file__)])
    here = Passthrough(("/elsewhere/", source))

    def inner(x):
        return x, native.mode()

    def entry(x):
        return inner(x)

    assert intercept(describe, entry, (1,), None, here) == (1, "off")
    assert intercept(describe, entry, (1,), passthrough=Passthrough(("/elsewhere/",))) == ("entry", (1,), {})
    assert intercept(describe, entry, (1,), passthrough=here) == (1, "off")


def test_passthrough_generators():
    here = Passthrough((__file__,))

    def g():
        yield native.mode()
        yield native.mode()

    assert intercept(describe, list, (g(),), passthrough=here) == ["off", "off"]


def test_passthrough_then_intercepted():
    """The mode is back after a passthrough frame has returned, also by an exception."""
    here = Passthrough((__file__,))
    namespace = {}
    exec(compile("def user(x): return x", "<user>", "exec"), namespace)

    def fail(x):
        raise KeyError(x)

    def key(x):
        return x

    calls = iter([key, namespace["user"]])

    assert intercept(describe, list, (map(lambda f: f, [1]),), passthrough=here) == [1]
    caught = intercept(describe, list, (map(namespace["user"], [1]),), passthrough=here)
    assert caught == [("user", (1,), {})]
    del calls, fail


def test_other_threads_are_not_intercepted():
    results = []

    def target():
        results.append((lambda: "real")())

    def run():
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()

    never_intercept(run.__code__)
    here = Passthrough((threading.__file__,))
    intercept(describe, run, passthrough=here)
    assert results == ["real"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "intercept"),
        ((describe,), "intercept"),
        ((describe, len, [1]), "args must be a tuple"),
        ((describe, len, (1,), 5), "kwargs must be a dict"),
        ((describe, len, (1,), {}, 5), "passthrough must be a Passthrough"),
    ],
)
def test_bad_calls(args, message):
    with pytest.raises(TypeError, match=message):
        intercept(*args)


def test_bad_passthrough():
    with pytest.raises(TypeError, match="prefixes must be a tuple of str"):
        Passthrough((1,))
