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
    """Return the kernels (``small`` where possible) and the expressions to guard; ``hints``: traced sizes."""
    known = {b.symbol for b in _early(program)} & hints.keys()
    made: list[Kernel] = []
    promised: dict[Expr, None] = {}
    for kernel in kernels:
        found = limits(kernel) if kernel.sizes and not kernel.template else None
        open_ = [expr for expr in found or () if not fits(expr)]
        may = all(
            {v.name for v in expr.variables} <= known and expr.evaluate(hints) <= INT32 for expr in open_
        )
        if not open_ or not may:
            made.append(kernel)
            continue
        made.append(replace(kernel, small=True))
        promised.update(dict.fromkeys(open_))
    return made, _largest(promised)


def _early(program: Program) -> list[SymbolBinding]:
    """Return the bindings whose source is a graph input."""
    return [b for b in program.bindings if b.source in program.parameters]


def _largest(exprs: Iterable[Expr]) -> tuple[Expr, ...]:
    """Keep only the largest of the multiples of one product."""
    found: dict[Any, tuple[int, Expr]] = {}
    for expr in exprs:
        if len(expr.terms) == 1:
            ((monomial, coefficient),) = expr.terms
            key: Any = monomial
        else:
            key, coefficient = expr, 1
        if key not in found or found[key][0] < coefficient:
            found[key] = coefficient, expr
    return tuple(expr for _, expr in found.values())


def too_large(exprs: Sequence[Expr], program: Program) -> Callable[[Sequence[Any]], bool]:
    """Return a function of the program's inputs: whether one of ``exprs`` exceeds 32 bits."""
    wanted = {v.name for expr in exprs for v in expr.variables}
    places = {name: k for k, name in enumerate(program.parameters)}
    lines = [
        f"    {binding.symbol} = {binding.python(f'inputs[{places[binding.source]}]')}"
        for binding in _early(program)
        if binding.symbol in wanted
    ]
    tests = " or ".join(f"{expr} > {INT32}" for expr in exprs)
    namespace: dict[str, Any] = {}
    exec("\n".join(["def check(inputs):", *lines, f"    return {tests}"]), {}, namespace)  # noqa: S102 - made of integers
    check: Callable[[Sequence[Any]], bool] = namespace["check"]
    return check
