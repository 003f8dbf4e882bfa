# ruff: noqa: E501
"""Shape expressions: the native program says what sympy says, or refuses."""

import itertools
import math
import random

import pytest
import sympy
import torch
from sympy.logic.boolalg import ITE, And, Not, Or
from torch.utils._sympy import functions as tf

from fxstack_capture.guards.records import ShapeHolds
from fxstack_capture.guards.shape import shape_program
from fxstack_capture.sources import Affine, Item, Local, Size, StorageOffset, Stride

a, b, c = symbols = sympy.symbols("a b c", integer=True, positive=True)
f, h = floats = sympy.symbols("f h", real=True)
X = Local("x")


def shape(expr, used=symbols):
    return ShapeHolds(expr, tuple((s, Item(X, i)) for i, s in enumerate(used)), str(expr))


INTEGERS = [
    a + b, a - b, a * b - c, 3 * a + 2, -a, tf.FloorDiv(a, b), tf.FloorDiv(a - 10, b), tf.ModularIndexing(a, b, c), tf.PythonMod(a - 10, b),
    tf.Mod(a, b), tf.CeilDiv(a, b), sympy.Max(a, b, c), sympy.Min(a, b + 1), tf.Max(a, b), tf.Min(a, b), a**2, a**b, tf.PowByNatural(a, 3), abs(a - 5),
    tf.LShift(a, b), tf.RShift(a, b), sympy.Mod(a, b), tf.Identity(a + b), (a + b) ** 2 - a * b, tf.Where(a < b, a, b), tf.TruncToInt(tf.IntTrueDiv(a, b)),
    tf.FloorToInt(tf.IntTrueDiv(a, b)), tf.CeilToInt(tf.IntTrueDiv(a, b)), tf.RoundToInt(tf.IntTrueDiv(a, b)), tf.BitwiseFn_bitwise_and(a, b),
    tf.BitwiseFn_bitwise_or(a, b),
]  # fmt: skip


def oracle(expr, values):
    """Python's own arithmetic, by substitution."""
    return expr.subs(values)


@pytest.mark.parametrize("expr", INTEGERS, ids=str)
def test_integer_expressions(g, expr):
    for x, y, z in itertools.product((1, 2, 3, 5, 7, 12), (1, 2, 3, 8), (1, 4)):
        expected = oracle(expr, {a: x, b: y, c: z})
        if not expected.is_Integer:
            continue
        arguments = [x, y, z]
        assert g.holds(shape(sympy.Eq(expr, expected, evaluate=False)), arguments), (x, y, z, expected)
        assert not g.holds(shape(sympy.Eq(expr, expected + 1, evaluate=False)), arguments), (
            x,
            y,
            z,
            expected,
        )


RELATIONS = [
    sympy.Eq(a, b), sympy.Ne(a, b), a < b, a <= b, a > b, a >= b, And(a < b, b < c), Or(a < b, b < c), Not(And(a < b, b < c)), ITE(a < b, b < c, a < c),
    sympy.Eq(tf.Mod(a, 2), 0), And(a <= 100, 2 * a < b * c, sympy.Ne(a, 7)), sympy.Eq(a / 2, b), a / 3 < b, sympy.true, sympy.false,
]  # fmt: skip


@pytest.mark.parametrize("expr", RELATIONS, ids=str)
def test_relations(g, expr):
    for values in itertools.product((1, 2, 3, 7), repeat=3):
        expected = bool(expr.subs(dict(zip(symbols, values))))
        assert g.holds(shape(expr), list(values)) == expected, values


@pytest.mark.parametrize(
    "dense",
    [(a, b), (1, a, b, 1), (2, a, b, c), (a, b, b, c), (2, 3, a, 4, b, 1), (1, 2, 4, 4 * a, 2 * a, b)],
    ids=str,
)
def test_whether_a_tensor_is_dense(g, dense):
    expr = tf.IsNonOverlappingAndDenseIndicator(*dense)
    for values in itertools.product((0, 1, 2, 3, 4, 8), repeat=3):
        expected = expr.subs(dict(zip(symbols, values))) == 1
        assert g.holds(shape(sympy.Eq(expr, 1)), list(values)) == expected, values


@pytest.mark.parametrize(
    "expr",
    [
        f < h,
        sympy.Eq(f, h),
        f + h > 1,
        f * 2 <= h,
        tf.FloatTrueDiv(f, h) > 1,
        tf.ToFloat(a) < f,
        tf.FloatPow(f, 2) < h,
        tf.OpaqueUnaryFn_sqrt(a) > f,
    ],
    ids=str,
)
def test_floats(g, expr):
    for x, y, n in itertools.product((0.5, 1.0, 2.25), (0.25, 1.0, 3.5), (1, 4)):
        values = {f: x, h: y, a: n}
        expected = bool(expr.subs(values))
        assert g.holds(shape(expr, (f, h, a)), [x, y, n]) == expected, values


@pytest.mark.parametrize(
    ("expr", "values"),
    [
        (a * b > c, (2**62, 4, 1)),
        (a + b > c, (2**62, 2**62, 1)),
        (a**b > c, (10, 30, 1)),
        (a >= c, (2**70, 1, 1)),
        (a >= c, ("1", 1, 1)),
        (a >= c, (None, 1, 1)),
        (tf.Mod(b, a) < c, (0, 1, 1)),
        (tf.FloorDiv(b, a) > c, (0, 1, 1)),
        (tf.CleanDiv(b, a) >= c, (2, 3, 1)),
    ],
)
def test_what_cannot_be_computed_does_not_hold(g, expr, values):
    assert not g.holds(shape(expr), list(values))


def test_integers_and_floats_compare_exactly(g):
    big = 2**53 + 1
    for x, n in (
        (float(2**53), big),
        (float(2**62), 2**62 + 1),
        (9.3e18, 2**62),
        (0.5, 0),
        (-math.inf, 1),
        (math.inf, 1),
        (math.nan, 1),
    ):
        for expr, expected in (
            (f < a, x < n),
            (sympy.Eq(f, a), x == n),
            (f > a, x > n),
            (sympy.Ne(f, a), x != n),
        ):
            assert g.holds(shape(expr, (f, a)), [x, n]) == expected, (expr, x, n)


def test_sizes_strides_and_offsets_of_tensors(g):
    t = torch.zeros(4, 6)[1:, ::2]
    sources = ((a, Size(X, 0)), (b, Stride(X, -1)), (c, StorageOffset(X)))
    check = ShapeHolds(And(sympy.Eq(a, 3), sympy.Eq(b, 2), sympy.Eq(c, 6)), sources, "")
    assert g.holds(check, t)
    assert not g.holds(check, torch.zeros(3, 2))
    assert not g.holds(check, torch.zeros(()))
    assert not g.holds(check, 5)


def test_random_expressions_agree_with_sympy(g):
    rng = random.Random(0)
    leaves = [a, b, c, *map(sympy.Integer, (1, 2, 3, 5))]
    joins = [
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, sympy.Max, sympy.Min,
        lambda x, y: tf.FloorDiv(x, abs(y) + 1), lambda x, y: tf.PythonMod(x, abs(y) + 1),
    ]  # fmt: skip

    def grow(depth):
        return rng.choice(leaves) if depth == 0 else rng.choice(joins)(grow(depth - 1), grow(depth - 1))

    for _ in range(25):
        left, right = grow(3), grow(2)
        expr = rng.choice([sympy.Eq, sympy.Lt, sympy.Le, sympy.Ne])(left, right)
        tree = g.tree((Item(X, 0), shape(expr)))
        for _ in range(5):
            values = [rng.randint(1, 20) for _ in symbols]
            assert g.passes(tree, values, None) == bool(expr.subs(dict(zip(symbols, values)))), (expr, values)


def test_unknown_functions_are_named():
    with pytest.raises(ValueError, match=r"no native form of sin in the shape expression sin\(a\)"):
        shape_program(sympy.sin(a) > 0, {a: 0})


def test_the_guard_is_named_when_it_cannot_be_compiled(g):
    with pytest.raises(ValueError, match="cannot compile the guard ShapeHolds on x: no native form of sin"):
        g.tree((X, shape(sympy.sin(a) > 0)))


@pytest.mark.parametrize("size", [0, 1, 3, 5, 7, 10])
def test_the_number_behind_a_formula(g, size):
    source = Affine(Size(X, 0), 2, 1)
    check = ShapeHolds(sympy.Le(a, 3, evaluate=False), ((a, source),), "")
    assert g.holds(check, torch.zeros(size), source=source) == (size % 2 == 1 and (size - 1) // 2 <= 3)
