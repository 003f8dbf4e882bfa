"""Decide whether a kernel's index arithmetic fits into 32 bits, which is several times faster on GPUs.

Intermediate sums of an address may wrap around, as long as the address fits. Dividends and the number of
points must fit.
"""

from __future__ import annotations

from collections.abc import Iterable

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ONE, ZERO, Atom, Expr, FloorDiv, Mod, Var, parts, product
from fxstack_inductor.ir.kernel import Kernel, Load

# Limits: the graph is compiled again if symbolic sizes lead to tensors of more than 2**31 elements. Sizes
# that depend on data are indexed with 64 bits.

INT32 = 2**31 - 2**16
"""The largest number that fits. The last tile may extend beyond the number, so the limit is below 2**31."""


def narrow(kernel: Kernel) -> bool:
    """Whether 32 bits are enough: provably here, or guaranteed by the launcher."""
    if kernel.small:
        return True
    bounds = limits(kernel)
    return bounds is not None and all(fits(expr) for expr in bounds)


def fits(expr: Expr) -> bool:
    number = expr.as_int()
    return number is not None and number <= INT32


def limits(kernel: Kernel) -> tuple[Expr, ...] | None:
    """Return the expressions in sizes that must fit into 32 bits; None if a bound is unknown."""
    extents = product(loop.extent for loop in (*kernel.outer, *kernel.inner))
    magnitudes = [magnitude(e) for e in (extents, *(ref.numel for ref in kernel.buffers))]
    for index in _indices(kernel):
        magnitudes += _inside(index)
    bounded = [expr for expr in magnitudes if expr is not None]
    return tuple(dict.fromkeys(bounded)) if len(bounded) == len(magnitudes) else None


def _indices(kernel: Kernel) -> Iterable[Expr]:
    yield from (v.index for v in kernel.values if isinstance(v, Load))
    yield from (store.index for store in kernel.stores)


def _inside(expr: Expr) -> list[Expr | None]:
    """Return the magnitudes of the dividends, divisors and compared expressions inside ``expr``."""
    return [magnitude(part) for atom in expr.atoms() for part in parts(atom)]


def magnitude(expr: Expr) -> Expr | None:
    """Return an upper bound of the absolute values of ``expr`` and its partial sums, or None."""
    total = ZERO
    for monomial, coefficient in expr.terms:
        factors = [_atom(atom) for atom in monomial]
        bounded = [factor for factor in factors if factor is not None]
        if len(bounded) < len(factors):
            return None
        total = total + product(bounded) * abs(coefficient)
    return total


def _atom(atom: Atom) -> Expr | None:
    """Return an upper bound of the absolute value of a variable, quotient, remainder or extremum, or None."""
    match atom:
        case Var(_, VarKind.LOOP, extent):
            most = None if extent is None else magnitude(extent)
            return None if most is None else most - ONE
        case Var(_, VarKind.SIZE):
            return Expr((((atom,), 1),))
        case Var(_, VarKind.VALUE):  # the value has 64 bits, so its sum has too
            return ZERO
        case Var():
            return None
        case FloorDiv(num):
            return magnitude(num)
        case Mod(_, den):
            return magnitude(den)
    bounds = [magnitude(part) for part in parts(atom)]
    return None if None in bounds else sum((b for b in bounds if b is not None), ZERO)
