"""Index expressions: simplification never changes a value, and finds what addressing needs."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ZERO, Var, extremum, floordiv, integer, loop_var, mod, of_atom, recombine
from fxstack_inductor.ir.expr_forms import contiguous_strides


def size_var(name):
    return of_atom(Var(name, VarKind.SIZE))


N, J = loop_var("i", 4096), loop_var("j", 64)


def test_like_terms_are_collected():
    assert N + J - N == J
    assert (N + 1) * (J + 2) == N * J + N * 2 + J + 2
    assert N - N == 0


def test_a_loop_of_one_iteration_is_zero():
    assert loop_var("k", 1) == ZERO


def test_division_takes_out_multiples_and_what_is_too_small():
    assert floordiv(N * 64 + J, 64) == N
    assert mod(N * 64 + J, 64) == J
    assert floordiv(J, 64) == ZERO


def test_nested_divisions_become_one():
    assert floordiv(floordiv(N, 4), 8) == floordiv(N, 32)
    assert mod(mod(N, 64), 8) == mod(N, 8)


def test_symbolic_sizes_divide():
    s = size_var("s")
    k = loop_var("k", s)
    assert floordiv(N * s + k, s) == N
    assert mod(N * s + k, s) == k


def test_recombination_undoes_a_split():
    assert recombine(floordiv(N, 8) * 24 + mod(N, 8) * 3) == N * 3


S, T = size_var("s"), size_var("t")
SPLITS = {
    "by a size": (floordiv(N, S) * S * 32 + mod(N, S) * 32 + J, N * 32 + J),
    "by a multiple": (floordiv(N, S * 4) * S * 4 * T + mod(N, S * 4) * T, N * T),
    "by two sizes": (floordiv(N, S * T) * S * T * 3 + mod(N, S * T) * 3, N * 3),
    "by a size of at least one": (floordiv(N, S) * extremum("max", S, 1) + mod(N, S), N),
}


@pytest.mark.parametrize("name", SPLITS)
def test_recombination_undoes_a_split_by_sizes(name):
    split, whole = SPLITS[name]
    assert recombine(split) == whole
    for i, j, s, t in itertools.product((0, 1, 17, 4095), (0, 63), (1, 2, 7), (1, 5)):
        values = {"i": i, "j": j, "s": s, "t": t}
        assert split.evaluate(values) == whole.evaluate(values)


OTHERS = {
    "another size": floordiv(N, S) * T + mod(N, S),
    "another factor": floordiv(N, S) * S * 2 + mod(N, S) * 3,
    "another dividend": floordiv(N, S) * S + mod(J, S),
    "too small a factor": floordiv(N, S * 4) * S * 2 + mod(N, S * 4),
    "another bound": floordiv(N, S) * extremum("max", S, 2) + mod(N, S),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_split_stays(name):
    assert recombine(OTHERS[name]) == OTHERS[name]


def test_extremes_are_decided_when_bounds_allow():
    assert extremum("max", J, 64) == 64
    assert str(extremum("max", size_var("s"), 1)) == "max(s, 1)"


def test_coefficient_is_none_when_not_linear():
    var = N.as_var()
    assert (N * 3 + J).coefficient(var) == 3
    assert J.coefficient(var) == ZERO
    assert floordiv(N, 3).coefficient(var) is None


def test_contiguous_strides_skip_empty_dimensions():
    assert contiguous_strides((integer(2), integer(0), integer(3))) == (3, 3, 1)


EXTENTS = {"a": 6, "b": 4, "c": 3}
VARS = [loop_var(name, extent) for name, extent in EXTENTS.items()]


def expressions():
    leaves = st.sampled_from(VARS) | st.integers(-3, 12).map(integer)

    def grow(inner):
        sizes = st.integers(1, 12)
        return (
            st.tuples(inner, inner).map(lambda p: p[0] + p[1])
            | st.tuples(inner, st.integers(-4, 12)).map(lambda p: p[0] * p[1])
            | st.tuples(inner, sizes).map(lambda p: ("div", *p))
            | st.tuples(inner, sizes).map(lambda p: ("mod", *p))
        )

    def build(tree):
        if not isinstance(tree, tuple):
            return tree
        op, inner, size = tree
        return (floordiv if op == "div" else mod)(build(inner), size)

    level = leaves
    for _ in range(3):
        level = level | grow(level).map(build)
    return level


def points():
    ranges = [range(extent) for extent in EXTENTS.values()]
    return (dict(zip(EXTENTS, values)) for values in itertools.product(*ranges))


@given(expressions(), st.integers(1, 24))
@settings(max_examples=300, deadline=None)
def test_division_is_python_s(expr, size):
    quotient, rest, again = floordiv(expr, size), mod(expr, size), recombine(expr)
    for point in points():
        value = expr.evaluate(point)
        assert quotient.evaluate(point) == value // size
        assert rest.evaluate(point) == value % size
        assert again.evaluate(point) == value


@given(expressions())
@settings(max_examples=200, deadline=None)
def test_bounds_hold(expr):
    low, high = expr.bounds()
    for point in points():
        value = expr.evaluate(point)
        assert low is None or low <= value
        assert high is None or value <= high


@given(expressions(), expressions())
@settings(max_examples=200, deadline=None)
def test_substitution_is_evaluation(expr, replacement):
    replaced = expr.subs({VARS[0].as_var(): replacement})
    for point in points():
        moved = {**point, "a": replacement.evaluate(point)}
        assert replaced.evaluate(point) == expr.evaluate(moved)


A, B = size_var("a"), size_var("b")


@pytest.mark.parametrize("num", [A - 1, A * 3 - B, -A, A * B])
@pytest.mark.parametrize("den", [integer(2), B, B * 3, B + 1])
@pytest.mark.parametrize("make", [floordiv, mod])
def test_text_is_python(make, num, den):
    expr = make(num, den) * 2 + 1
    values = {"a": 7, "b": 3}
    assert eval(str(expr), values.copy()) == expr.evaluate(values)
