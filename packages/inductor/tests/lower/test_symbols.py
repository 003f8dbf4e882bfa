"""Sizes that are no polynomials: rounded, chosen by cases, negative."""

import pytest
import sympy
import torch
from inductor_checks import check
from torch.nn import functional as F
from torch.utils._sympy.functions import FloorDiv, PythonMod, TruncToInt, Where

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.lower.host.symbols import convert, evaluator

S = sympy.Symbol("s0", integer=True, positive=True)
U = sympy.Symbol("u0", integer=True)


def value_of(expr, **values):
    """What the expression evaluates to once its defined variables are computed as the host does."""
    made = convert(expr, {})
    for var in made.variables:
        if var.definition:
            function, names = evaluator(var.definition)
            values[var.name] = function(*(values[name] for name in names))
    return made.evaluate(values)


@pytest.mark.parametrize("u", [-3, -2, 0, 5])
def test_cases(u):
    expr = 2 * sympy.Piecewise((1, sympy.Eq(U, -2) & (U < 0)), (S, True)) + 1
    assert value_of(expr, u0=u, s0=7) == int(expr.subs({U: u, S: 7}))


@pytest.mark.parametrize("s", [1, 2, 9])
def test_rounding(s):
    assert value_of(TruncToInt(S * 0.7) + S, s0=s) == int(s * 0.7) + s


def test_where():
    assert value_of(Where(U < 0, S, U) * 3, u0=-1, s0=4) == 12


def test_quotients_by_what_may_be_negative_are_pythons():
    assert value_of(FloorDiv(S, 2) + PythonMod(S, U), s0=7, u0=-4) == 3 + 7 % -4


def test_symbols_without_a_sign_have_no_lower_bound():
    assert convert(U, {}).bounds() == (None, None)
    assert convert(S, {}).bounds() == (0, None)
    assert convert(U, {U: torch.utils._sympy.value_ranges.ValueRanges(0, 5)}).bounds() == (0, None)
    assert {v.kind for v in convert(U, {}).variables} == {VarKind.INTEGER}


def test_what_is_no_integer_is_refused():
    with pytest.raises(NotLowered, match="no integer"):
        convert(S / sympy.Integer(2), {})


def test_graph_with_a_rounded_size():
    def f(x):
        return torch.zeros(torch.sym_int(x.shape[0] * 0.5) + 1, x.shape[1]) + x[:1]

    check(f, torch.randn(6, 4), symbolic=True, others=[(torch.randn(n, n),) for n in (9, 30)])


def test_interpolation_by_a_fraction():
    def f(x):
        return F.interpolate(x, scale_factor=1.7) * 2

    check(f, torch.randn(2, 3, 6, 5), symbolic=True, others=[(torch.randn(2, 3, 9, 4),)])
