# ruff: noqa: F821, RET503, PYI024 - programs with faults
"""Programs in all of Python, over tensors: ``optimize`` gives what plain Python gives, also when called again.

Values, side effects on the arguments and exceptions are compared on three inputs. ``ONE_GRAPH`` are programs
that have no reason to break the graph.
"""

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import sys
import warnings

import pytest
import torch

from fxstack_capture import explain, graph_break, native, optimize
from fxstack_capture.driver.errors import TracingWarning

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")

PROGRAMS = []
COUNTER = 0


def prog(fn):
    PROGRAMS.append(fn)
    return fn


@prog
def gen_live_across_break(x):
    def g():
        for i in range(4):
            yield x * i

    it = g()
    a = next(it)
    graph_break()
    b = next(it)
    return a + b + sum(it)


@prog
def gen_consumed(x):
    def g(n):
        for i in range(n):
            yield x + i

    return sum(g(3)), [y * 2 for y in g(2)], torch.stack(list(g(2)))


@prog
def gen_with_break_inside(x):
    def g(n):
        for i in range(n):
            graph_break()
            yield x + i

    t = 0
    for y in g(3):
        t = t + y
    return t


@prog
def gen_returned(x):
    def g():
        for i in range(3):
            yield x * i

    return g()


@prog
def exc_across_frames(x):
    def f(y):
        if y.shape[0] == 2:
            raise ValueError("two", y.shape)
        return y

    try:
        return f(x)
    except ValueError as e:
        return x * len(e.args), str(e)


@prog
def exc_break_in_handler(x):
    try:
        y = x + 1
        raise KeyError("k")
    except KeyError as e:
        graph_break()
        z = y * 2
        return z, str(e), repr(sys.exc_info()[1])


@prog
def exc_break_in_try(x):
    try:
        y = x + 1
        graph_break()
        z = y / 0
        raise ValueError(3)
    except ValueError as e:
        return z * e.args[0]
    finally:
        x.add_(1)


@prog
def exc_uncaught(x):
    y = x + 1
    raise RuntimeError("bad", 3)


@prog
def with_break(x):
    log = []

    @contextlib.contextmanager
    def cm(n):
        log.append("in%s" % n)
        try:
            yield n
        finally:
            log.append("out%s" % n)

    with cm(1) as a, torch.no_grad():
        y = x + a
        graph_break()
        z = y * 2
        g = torch.is_grad_enabled()
    return z, log, g, torch.is_grad_enabled()


@prog
def break_in_loop(x):
    t = x
    for i in range(4):
        t = t + i
        if i % 2:
            graph_break()
        t = t * 1.5
    return t


@prog
def data_branch(x):
    if x.sum() > 3:
        return x * 2
    return x - 1


@prog
def data_while(x):
    n = 0
    while x.sum() < 100:
        x = x * 2
        n += 1
    return x, n


@prog
def closure_mut(x):
    n = 0
    hist = []

    def f(y):
        nonlocal n
        n += 1
        hist.append(y.sum())
        return y * n

    a = f(x)
    graph_break()
    b = f(a)
    return b, n, hist


@prog
def cls_inside(x):
    class A:
        k = 2

        def __init__(s, v):
            s.v = v

        def __add__(s, o):
            return A(s.v + o.v)

        @property
        def d(s):
            return s.v * s.k

    class B(A):
        def __init__(s, v):
            super().__init__(v + 1)

    return (A(x) + B(x)).d


@prog
def cls_escape(x):
    class A:
        def __init__(s, v):
            s.v = v

        def get(s):
            return s.v

    return A(x * 2).get(), A(x + 1).v


@prog
def dataclass_use(x):
    @dataclasses.dataclass
    class D:
        a: torch.Tensor
        b: list = dataclasses.field(default_factory=list)

    d = D(x)
    d.b.append(x + 1)
    d2 = dataclasses.replace(d, a=d.a * 2)
    return d2.a, d2.b, d.a


@prog
def match_tensors(x):
    match (x.shape[0], {"w": x}):
        case (2, {"w": t}):
            return t * 2
        case _:
            return x


@prog
def comp_nested(x):
    return ([[y * i for y in x] for i in range(2)], {i: x[i] for i in range(2)}, {i for i in range(3)})


@prog
def star(x):
    def f(a, *b, c=1, **d):
        return a + sum(b) + c + sum(d.values())

    return f(x, *[x, x], c=2, z=x)


@prog
def fstr(x):
    return f"{x.shape[0]:>4}|{tuple(x.shape)!r}", x + 1


@prog
def unpack_t(x):
    a, b = x
    (p, *q), r = (x, x + 1, x + 2), b
    return a + r, p, q


@prog
def itertools_use(x):
    return (
        [a + b for a, b in itertools.product([x, x * 2], [1, 2])],
        list(itertools.accumulate([x, x, x], lambda p, q: p + q)),
        functools.reduce(lambda p, q: p * q, [x, x, x]),
    )


@prog
def sort_key(x):
    return sorted([(3, x), (1, x + 1), (2, x * 2)], key=lambda p: p[0]), max([1, 5, 2], key=lambda v: -v)


@prog
def global_write(x):
    global COUNTER
    COUNTER += 1
    return x + COUNTER


COUNTER = 0


@prog
def recursion(x):
    def f(n):
        return x if n == 0 else f(n - 1) + 1

    return f(5)


@prog
def try_finally_return(x):
    def f():
        for i in range(3):
            try:
                if i == 1:
                    return x * i
            finally:
                x.add_(1)

    return f()


@prog
def with_suppress(x):
    y = x
    with contextlib.suppress(ValueError):
        y = y + 1
        raise ValueError
    return y


@prog
def throw_gen(x):
    def g():
        try:
            yield x
        except ValueError as e:
            yield x * 2
        finally:
            x.mul_(1)

    it = g()
    a = next(it)
    b = it.throw(ValueError("q"))
    it.close()
    return a, b


@prog
def yield_from(x):
    def inner():
        r = yield x
        return r * 2

    def outer():
        v = yield from inner()
        yield v

    it = outer()
    a = next(it)
    b = it.send(x + 1)
    return a, b


@prog
def exc_group(x):
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError as e:
        y = x + len(e.exceptions)
    except* KeyError as e:
        y = y * 3
    return y


@prog
def walrus(x):
    return [z for i in range(3) if (z := x * i) is not None], z


@prog
def defaults_kw(x):
    fs = [lambda y, i=i: y + i for i in range(3)]
    return [f(x) for f in fs]


@prog
def deep_break(x):
    def a(y):
        return b(y + 1) * 2

    def b(y):
        return c_(y * 3) - 1

    def c_(y):
        graph_break()
        return y + 10

    return a(x)


@prog
def item(x):
    n = int(x[0, 1].item())
    return x * n


@prog
def print_between(x):
    y = x + 1
    print("hello", end="")
    return y * 2


@prog
def del_local(x):
    y = x + 1
    del x
    try:
        x
    except UnboundLocalError as e:
        return y, str(e)


@prog
def enum_use(x):
    class C(enum.Enum):
        A = 1
        B = 2

    return x * C.B.value, C(1).name


@prog
def tb_use(x):
    try:
        x.reshape(7)
    except RuntimeError as e:
        return x + 1, "shape" in str(e)


@prog
def nested_with_exc(x):
    class M:
        def __enter__(s):
            return s

        def __exit__(s, *a):
            return a[0] is ValueError

    with M():
        y = x + 1
        raise ValueError
    return y


@prog
def named_tuple(x):
    T = collections.namedtuple("T", "a b")
    t = T(x, x + 1)
    return t._replace(a=t.b), t.a


@prog
def partials(x):
    f = functools.partial(torch.add, alpha=2)
    return f(x, x), functools.partial(lambda a, b: a - b, x)(b=x)


INPUTS = tuple(torch.arange(6.0).reshape(2, 3) * k + k for k in (1, 2, 3))

BREAKING = {
    "break_in_loop",
    "closure_mut",
    "data_branch",
    "data_while",
    "deep_break",
    "enum_use",
    "exc_break_in_handler",
    "exc_break_in_try",
    "exc_uncaught",
    "gen_live_across_break",
    "gen_returned",
    "gen_with_break_inside",
    "item",
    "named_tuple",
    "print_between",
    "with_break",
}
"""Programs that break the graph, leave it by an exception, or hand out what is not captured."""


def outcome(fn, x):
    """What a call did: result or exception, the argument afterwards, the global counter."""
    global COUNTER
    COUNTER = 0
    x = x.clone()
    try:
        result = fn(x)
        if hasattr(result, "__next__"):
            result = list(result)
        return ("value", result, x, COUNTER)
    except Exception as error:
        return ("raised", type(error), str(error), x, COUNTER)


def assert_same(got, expected):
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    elif isinstance(expected, (list, tuple)):
        assert type(got).__name__ == type(expected).__name__
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b)
    elif isinstance(expected, dict):
        assert_same([*got.items()], [*expected.items()])
    else:
        assert got == expected


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_in_plain_python(program, capsys):
    expected = [outcome(program, x) for x in INPUTS]
    optimized = optimize()(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TracingWarning)
        for x, wanted in zip(INPUTS, expected, strict=True):
            assert_same(outcome(optimized, x), wanted)


ONE_GRAPH = [program for program in PROGRAMS if program.__name__ not in BREAKING]


@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda program: program.__name__)
def test_is_one_graph(program):
    first = str(explain(program)(INPUTS[0].clone())).splitlines()[0]
    assert first.startswith("1 graph(s)")
    assert " 0 graph break(s)" in first
