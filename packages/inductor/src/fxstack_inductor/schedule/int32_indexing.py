"""Let kernels of symbolic sizes index with 32 bits; a check before the program runs guards the sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.lower.program import Program, SymbolBinding
from fxstack_inductor.schedule.index_width import INT32, fits, limits


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
    """Return a function of the program's inputs: whether one of ``exprs`` exceeds 32 bits."""
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
