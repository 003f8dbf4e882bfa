"""Loop transformations: split, order, merge and rename a kernel's loops, and find the sizes it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ONE, Expr, FloorDiv, Mod, Var, integer, of_atom
from fxstack_inductor.ir.kernel import Kernel, Load, Loop, expressions, with_expressions

VECTOR = 8
"""The fewest points of a loop that makes vectors."""


def normalise(kernel: Kernel) -> Kernel:
    """Run all loop passes on a kernel that the schedule's passes have not seen, for example a kernel that
    tiling made.
    """
    for step in PASSES:
        kernel = step(kernel)
    return kernel


def split_loops(kernel: Kernel) -> Kernel:
    """Split loops so that quotients and remainders of their variables become variables."""
    while (candidate := _split_candidate(kernel)) is not None:
        var, size = candidate
        extent = (var.extent or ONE).as_int() or 0
        high = Var(f"{var.name}h", VarKind.LOOP, integer(extent // size))
        low = Var(f"{var.name}l", VarKind.LOOP, integer(size))
        mapping = {var: of_atom(high) * size + of_atom(low)}
        kernel = replace(
            kernel,
            outer=_replace_loop(kernel.outer, var, (high, low)),
            inner=_replace_loop(kernel.inner, var, (high, low)),
        )
        kernel = _rewrite(kernel, lambda e, m=mapping: e.subs(m))  # type: ignore[misc]
    return kernel


def _split_candidate(kernel: Kernel) -> tuple[Var, int] | None:
    """Return a loop variable and its smallest divisor in use; larger divisors then still divide the rest."""
    loops = {loop.var for loop in (*kernel.outer, *kernel.inner)}
    best: tuple[Var, int] | None = None
    for expr in _expressions(kernel):
        for atom in expr.atoms():
            if not isinstance(atom, (FloorDiv, Mod)):
                continue
            var, den = atom.num.as_var(), atom.den.as_int()
            extent = None if var is None or var.extent is None else var.extent.as_int()
            if var not in loops or var is None or den is None or extent is None or extent % den:
                continue
            if best is None or den < best[1]:
                best = var, den
    return best


def _replace_loop(loops: tuple[Loop, ...], var: Var, parts: tuple[Var, ...]) -> tuple[Loop, ...]:
    """Return ``loops`` with the loop ``var`` replaced by loops over ``parts``."""
    result: list[Loop] = []
    for loop in loops:
        split = parts if loop.var == var else (loop.var,)
        result += [Loop(part, part.extent or ONE) for part in split]
    return tuple(result)


def order_for_vectors(kernel: Kernel) -> Kernel:
    """Order loops as ``order_loops``, but points along the loop that most accesses lie along: others go through copies."""
    return (
        order_loops(kernel)
        if kernel.inner
        else replace(kernel, outer=_sorted(kernel.outer, kernel, vectors=True))
    )


def order_loops(kernel: Kernel) -> Kernel:
    """Order loops from the largest stride to the smallest, judged by the access with the most of these loops.

    Of several, one that changes along the inner loops, too, decides: it has more elements. Of several of these, the one decides
    whose order most of the others have.
    """
    return replace(
        kernel,
        outer=_sorted(kernel.outer, kernel),
        inner=kernel.inner if kernel.ordered else _sorted(kernel.inner, kernel),
    )


def _sorted(loops: tuple[Loop, ...], kernel: Kernel, *, vectors: bool = False) -> tuple[Loop, ...]:
    """Return loops in order of stride; loops of equal stride keep their order. ``vectors``: as most accesses have it."""
    if len(loops) < 2:
        return loops
    accesses = [s.index for s in kernel.stores] + [v.index for v in kernel.values if isinstance(v, Load)]
    variables = [loop.var for loop in loops]
    most = max((sum(v in e.variables for v in variables) for e in accesses), default=0)
    widest = [e for e in accesses if sum(v in e.variables for v in variables) == most]
    if not widest:
        return loops
    every = {loop.var for loop in (*kernel.outer, *kernel.inner)}
    size = max(len(every & e.variables) for e in widest)
    full = [e for e in widest if len(every & e.variables) == size]
    if vectors:
        found = [_order(e, loops) for e in full]
        counts = Counter(order for order in found if (order[-1].extent.as_int() or VECTOR) >= VECTOR)
        return max(found, key=lambda order: counts[order])
    others = Counter(_order(e, loops) for e in widest if e not in full)
    return max((_order(e, loops) for e in (full if others else full[:1])), key=lambda order: others[order])


def _order(index: Expr, loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Return the loops in order of their strides in ``index``."""
    steps = {loop.var: _stride(index, loop.var) for loop in loops}
    return tuple(sorted(loops, key=lambda loop: -steps[loop.var]))


def _stride(index: Expr, var: Var) -> int:
    """Return a number by which loops are ordered: the stride of ``var`` in ``index``; unused loops go outermost."""
    coefficient = index.coefficient(var)
    if coefficient is None:
        return 1
    if not coefficient.terms:
        # The access repeats over this loop; as an outer loop it leaves the contiguous loops innermost.
        return 1 << 62
    number = coefficient.as_int()
    degree = max(len(monomial) for monomial, _ in coefficient.terms)
    return abs(number) if number is not None else 1 << (20 * degree)


def merge_loops(kernel: Kernel) -> Kernel:
    """Merge adjacent loops that every address traverses as one loop."""
    outer, mapping = _merge(kernel.outer, _expressions(kernel))
    kernel = _rewrite(replace(kernel, outer=outer), mapping)
    inner, mapping = _merge(kernel.inner, _expressions(kernel))
    return _rewrite(replace(kernel, inner=inner), mapping)


def _merge(
    loops: tuple[Loop, ...], expressions: Sequence[Expr]
) -> tuple[tuple[Loop, ...], Callable[[Expr], Expr]]:
    """Merge adjacent loops; return the merged loops and the function that rewrites index expressions."""
    steps: list[tuple[Var, Var, Var]] = []
    current = list(loops)
    exprs = list(expressions)
    position = len(current) - 2
    while position >= 0:
        high, low = current[position], current[position + 1]
        # From the innermost pair outwards: a merged loop can be merged again with the next outer loop.
        if all(_walks_as_one(e, high.var, low) for e in exprs):
            extent = high.extent * low.extent
            merged = Var(high.var.name, VarKind.LOOP, extent)
            steps.append((high.var, low.var, merged))
            exprs = [_fold(e, high.var, low.var, merged) for e in exprs]
            current[position : position + 2] = [Loop(merged, extent)]
        position -= 1

    def mapping(expr: Expr) -> Expr:
        """Rewrite an index expression for the merged loops."""
        for high, low, merged in steps:
            expr = _fold(expr, high, low, merged)
        return expr

    return tuple(current), mapping


def _walks_as_one(expr: Expr, high: Var, low: Loop) -> bool:
    """Whether an address moves over both loops as over one loop."""
    a, b = expr.coefficient(high), expr.coefficient(low.var)
    return a is not None and b is not None and a == b * low.extent


def _fold(expr: Expr, high: Var, low: Var, merged: Var) -> Expr:
    """Return ``expr`` with the variable ``merged`` in place of ``high`` and ``low``."""
    a, b = expr.coefficient(high), expr.coefficient(low)
    if a is None or b is None or not (a.terms or b.terms):
        return expr
    return expr - of_atom(high) * a - of_atom(low) * b + of_atom(merged) * b


def _expressions(kernel: Kernel) -> list[Expr]:
    """Return all index expressions of a kernel."""
    indices = [store.index for store in kernel.stores]
    return indices + [expr for value in kernel.values for expr in expressions(value)]


def _rewrite(kernel: Kernel, change: Callable[[Expr], Expr]) -> Kernel:
    """Return ``kernel`` with all index expressions changed."""
    values = tuple(with_expressions(value, change) for value in kernel.values)
    stores = tuple(replace(s, index=change(s.index)) for s in kernel.stores)
    return replace(kernel, values=values, stores=stores)


def rename_loops(kernel: Kernel) -> Kernel:
    """Rename outer loops to ``p0, p1, ...``, inner loops to ``r0, r1, ...``: equal kernels get equal text."""
    mapping: dict[Var, Expr] = {}

    def renamed(loops: Iterable[Loop], letter: str) -> tuple[Loop, ...]:
        """Return loops with new names, and record the new variables."""
        result = []
        for k, loop in enumerate(loops):
            var = Var(f"{letter}{k}", VarKind.LOOP, loop.extent)
            mapping[loop.var] = of_atom(var)
            result.append(Loop(var, loop.extent))
        return tuple(result)

    changed = replace(kernel, outer=renamed(kernel.outer, "p"), inner=renamed(kernel.inner, "r"))
    return _rewrite(changed, lambda e: e.subs(mapping))


def find_sizes(kernel: Kernel) -> Kernel:
    """List the symbolic sizes that the kernel takes as arguments."""
    exprs = [*_expressions(kernel), *(loop.extent for loop in (*kernel.outer, *kernel.inner))]
    names = {v.name for expr in exprs for v in expr.variables if v.symbolic}
    return replace(kernel, sizes=tuple(sorted(names)))


PASSES = (split_loops, order_loops, merge_loops, rename_loops, find_sizes)
