"""Which expressions may leave 64 bits for the present values."""

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, LShift, PowByNatural

from fxstack_capture.shapes.symbolic.overflow_guards import OverflowGuards, unbounded_parts

N = sympy.Symbol("n", integer=True, positive=True)
U = sympy.Symbol("u", integer=True)

SMALL = (N, N * 2**50, N**10 + U, PowByNatural(2, N), LShift(N, 50), sympy.Gt(N**10, U), FloorDiv(N**9, 7))
LARGE = (
    *(N * 2**60, N**10 * 2**30, N**30, sympy.Integer(2**64), PowByNatural(2, N * 2), LShift(N, 60)),
    *(sympy.Gt(N * 2**60, U), FloorDiv(N * 2**60, 7), N**9 * U + 2**62, PowByNatural(N, 2**40)),
)


@pytest.mark.parametrize("expr", [*SMALL, *LARGE], ids=str)
def test_what_may_overflow(expr):
    assert OverflowGuards({N: 40}).may_overflow(expr) == (expr in LARGE)


def test_parts_that_may_grow_are_the_outermost():
    inner = sympy.Mod(N * 3 + 1, 8)
    assert unbounded_parts(inner * 2 + U) == [inner * 2 + U]
    assert unbounded_parts(FloorDiv(N * 5, N + 2)) == [N * 5, N + 2]
    assert unbounded_parts(N) == []
