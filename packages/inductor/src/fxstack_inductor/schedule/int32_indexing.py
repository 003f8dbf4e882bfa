"""Decide whether a kernel's index arithmetic fits into 32 bits, which is several times faster on GPUs.

Intermediate sums of an address may wrap around, as long as the address fits. Dividends and the number of points must
fit. For symbolic sizes, a check before the program runs guards the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ONE, ZERO, Atom, Expr, FloorDiv, Mod, Var, parts, product
from fxstack_inductor.ir.kernel import Kernel, Load
from fxstack_inductor.lower.program import Program, SymbolBinding

# Limits: the graph is compiled again if symbolic sizes lead to tensors of more than 2**31 elements. Sizes
# that depend on data are indexed with 64 bits.

INT32 = 2**31 - 2**16
"""The largest number that fits. The last tile may extend beyond the number, so the limit is below 2**31."""


def narrow(kernel: Kernel) -> bool:
    """Whether 32 bits are enough for all indices: provably, or because the launcher has checked the sizes."""
    if kernel.small:
        return True
    bounds = limits(kernel)
    return bounds is not None and all(fits(expr) for expr in bounds)


def fits(expr: Expr) -> bool:
    """Whether a bound is a number that fits into 32 bits."""
    number = expr.as_int()
    return number is not None and number <= INT32


def limits(kernel: Kernel) -> tuple[Expr, ...] | None:
    """Return the expressions in sizes that must fit into 32 bits; None if a bound is unknown."""
    extents = product(loop.extent for loop in (*kernel.outer, *kernel.inner))
    upper_bounds = [magnitude(e) for e in (extents, *(ref.numel for ref in kernel.buffers))]
    for index in _indices(kernel):
        upper_bounds += _inside(index)
    bounded = [expr for expr in upper_bounds if expr is not None]
    return tuple(dict.fromkeys(bounded)) if len(bounded) == len(upper_bounds) else None


def _indices(kernel: Kernel) -> Iterable[Expr]:
    """Yield the addresses of the kernel's loads and stores."""
    yield from (v.index for v in kernel.values if isinstance(v, Load))
    yield from (store.index for store in kernel.stores)


def _inside(expr: Expr) -> list[Expr | None]:
    """Return upper bounds of the dividends, divisors and compared expressions inside ``expr``."""
    return [magnitude(part) for atom in expr.atoms() for part in parts(atom)]


def magnitude(expr: Expr) -> Expr | None:
    """Return an upper bound of the absolute values of ``expr`` and its partial sums; None if it is unknown."""
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
        case Var(_, VarKind.VALUE):  # the value has 64 bits, so a sum with it has 64 bits
            return ZERO
        case Var():
            return None
        case FloorDiv(num):
            return magnitude(num)
        case Mod(_, den):
            return magnitude(den)
    bounds = [magnitude(part) for part in parts(atom)]
    return None if None in bounds else sum((b for b in bounds if b is not None), ZERO)


def small_kernels(
    kernels: Sequence[Kernel], program: Program, hints: Mapping[str, int]
) -> tuple[list[Kernel], tuple[Expr, ...]]:
    """Return the kernels, ``small`` where 32-bit indices suffice, and the expressions that a check must guard.

    ``hints`` are the sizes of the trace: a kernel stays wide if the traced sizes exceed the limit.
    """
    input_symbols = {b.symbol for b in _input_bindings(program)} & hints.keys()
    result: list[Kernel] = []
    guards: dict[Expr, None] = {}
    for kernel in kernels:
        bounds = limits(kernel) if kernel.sizes and not kernel.template else None
        unproved = [expr for expr in bounds or () if not fits(expr)]
        guardable = all(
            {v.name for v in expr.variables} <= input_symbols and expr.evaluate(hints) <= INT32
            for expr in unproved
        )
        if not unproved or not guardable:
            result.append(kernel)
            continue
        result.append(replace(kernel, small=True))
        guards.update(dict.fromkeys(unproved))
    return result, _drop_implied(guards)


def _input_bindings(program: Program) -> list[SymbolBinding]:
    """Return the bindings whose source is a graph input."""
    return [b for b in program.bindings if b.source in program.parameters]


def _drop_implied(exprs: Iterable[Expr]) -> tuple[Expr, ...]:
    """Drop expressions that are smaller multiples of the same product as another expression."""
    largest: dict[Any, tuple[int, Expr]] = {}
    for expr in exprs:
        if len(expr.terms) == 1:
            ((monomial, coefficient),) = expr.terms
            key: Any = monomial
        else:
            key, coefficient = expr, 1
        if key not in largest or largest[key][0] < coefficient:
            largest[key] = coefficient, expr
    return tuple(expr for _, expr in largest.values())


def too_large(exprs: Sequence[Expr], program: Program) -> Callable[[Sequence[Any]], bool]:
    """Return a function that tells, from a call's inputs, whether one of ``exprs`` exceeds 32 bits."""
    names = {v.name for expr in exprs for v in expr.variables}
    positions = {name: k for k, name in enumerate(program.parameters)}
    lines = [
        f"    {binding.symbol} = {binding.python(f'inputs[{positions[binding.source]}]')}"
        for binding in _input_bindings(program)
        if binding.symbol in names
    ]
    tests = " or ".join(f"{expr} > {INT32}" for expr in exprs)
    namespace: dict[str, Any] = {}
    exec("\n".join(["def check(inputs):", *lines, f"    return {tests}"]), {}, namespace)  # noqa: S102 - made of integers
    check: Callable[[Sequence[Any]], bool] = namespace["check"]
    return check
