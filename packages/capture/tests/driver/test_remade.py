"""Functions that are made anew for every call: compiled once, and never mistaken for one another."""

import functools

import pytest
import torch
from running import Graphs
from same import difference

import fxstack_capture as fx

X = torch.arange(3.0)


def graphs_of(fn, makers):
    """How many graphs calls of ``fn`` take, one for each of ``makers`` of arguments; each does what plain Python does."""
    backend = Graphs()
    optimised = fx.optimize(backend)(fn)
    for make in makers:
        expected, found = outcome(fn, make()), outcome(optimised, make())
        assert difference(found, expected) is None, difference(found, expected)
    return len(backend)


def outcome(fn, args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


def apply(x, fn):
    return fn(x) + 1


def times(k):
    def scaled(v):
        return v * k

    return scaled


def over_a_break(x):
    def double(v):
        return v * 2

    fx.graph_break()
    return double(x)


def with_a_cell_over_a_break(x):
    k = x.sum()

    def scaled(v):
        return v * k

    fx.graph_break()
    return scaled(x) + scaled(k)


def in_a_comprehension(x):
    def halves(v):
        fx.graph_break()
        return v * 0.5

    return [halves(x + i) for i in range(2)]


@pytest.mark.parametrize("fn", [over_a_break, with_a_cell_over_a_break])
def test_a_closure_over_a_break_is_compiled_once(fn):
    assert graphs_of(fn, [lambda: (X,)]) == graphs_of(fn, [lambda: (X,)] * 5)


def test_a_comprehension_that_breaks_is_not_compiled_in_every_call():
    few, many = (graphs_of(in_a_comprehension, [lambda: (X,)] * n) for n in (3, 6))
    assert few == many


MADE_ANEW = {
    "lambda": lambda: (X, lambda v: v * 2),
    "closure": lambda: (X, times(X + 1)),
    "partial": lambda: (X, functools.partial(lambda a, b: a + b, X)),
}


@pytest.mark.parametrize("make", MADE_ANEW.values(), ids=MADE_ANEW)
def test_an_argument_is_compiled_at_most_twice(make):
    assert graphs_of(apply, [make] * 5) <= 2


class Holder:
    def __init__(self):
        self.fn = lambda v: v + 1


def test_an_attribute_is_compiled_twice():
    assert graphs_of(lambda x, h: h.fn(x) * 2, [lambda: (X, Holder())] * 5) == 2


def test_what_a_closure_holds_is_guarded():
    assert graphs_of(apply, [lambda k=k: (X, times(k)) for k in (2, 3, X, "no", 4)]) <= 5


def renamed():
    fn = times(2)
    fn.__name__ = fn.__qualname__ = "other"
    return fn


def with_default(value):
    def fn(v, k=value):
        return v * k

    return fn


@pytest.mark.parametrize(
    ("program", "makers"),
    [
        (lambda x, fn: (fn(x), fn.__name__), [lambda: (X, times(2)), lambda: (X, renamed())]),
        (lambda x, fn: fn(x, 1, 2), [lambda: (X, times(2)), lambda: (X, renamed())]),
        (apply, [lambda: (X, with_default(2)), lambda: (X, with_default(5))]),
        (apply, [lambda: (X, lambda v: v + 1), lambda: (X, lambda v: v - 1)]),
    ],
)
def test_what_a_function_is_made_of_is_guarded(program, makers):
    graphs_of(program, makers * 2)


KNOWN = times(2)
TABLE = {KNOWN: 10}


@pytest.mark.parametrize(
    "program",
    [
        lambda x, fn: x + TABLE.get(fn, 1),
        lambda x, fn: x + (1 if fn is KNOWN else 2),
        lambda x, fn: x + (1 if fn == KNOWN else 2),
        lambda x, fn: x + (1 if fn in (KNOWN, print) else 2),
        lambda x, fn: x + {KNOWN: 5, print: 6}.get(fn, 7),
    ],
)
def test_a_function_known_by_identity_is_told_from_others_of_its_code(program):
    new, known = (lambda: (X, times(2))), (lambda: (X, KNOWN))
    graphs_of(program, [new, new, known, new, known])
    graphs_of(program, [known, known, new, known])


def test_two_functions_of_one_code_are_told_apart():
    program = lambda x, f, g: x + (1 if f is g else 2) + len({f, g})
    apart, one = (lambda: (X, times(2), times(2))), (lambda: (X, *[times(2)] * 2))
    graphs_of(program, [apart, apart, one, one, apart])


def pair(shared):
    def make(n):
        def get():
            return n

        def put(v):
            nonlocal n
            n = v

        return get, put

    get, put = make(1)
    return (X, get, put) if shared else (X, make(1)[0], put)


def test_cells_that_functions_share_are_guarded():
    def program(x, get, put):
        put(5)
        return x + get()

    both = [lambda s=s: pair(s) for s in (True, True, False, False, True)]
    graphs_of(program, both)
    graphs_of(program, both[2:])


def test_a_function_that_must_not_be_compiled_is_not_mistaken_for_one_that_may():
    graphs_of(apply, [lambda: (X, times(2)), lambda: (X, fx.disable(times(2)))] * 2)
    registered = fx.allow_in_graph(times(3))
    graphs_of(apply, [lambda: (X, times(3)), lambda: (X, registered)] * 2)


def test_a_function_that_leaves_is_the_one_that_came():
    kept = []
    program = fx.optimize(Graphs())(lambda x, fn: (kept.append(fn), fn, fn(x))[1])
    functions = [times(2) for _ in range(4)]
    assert [program(X, fn) for fn in functions] == functions == kept
