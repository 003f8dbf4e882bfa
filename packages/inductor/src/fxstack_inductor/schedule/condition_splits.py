"""Split a kernel's loops where conditions on coordinates change, so that the parts have no conditions.

A concatenation, padding or rotation decides for each element which of its parts the element belongs to.
Between two changes the decision is constant. ``segments`` splits the last loop at the changes; ``assume`` fixes a
condition that does not depend on the last loop. In the resulting parts conditions are constants, and excluded
values are gone.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import torch

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import Expr, Extremum, Mod, Var, integer, of_atom, value_var
from fxstack_inductor.ir.expr_forms import decided
from fxstack_inductor.ir.kernel import (
    FALSE,
    TRUE,
    Check,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    Loop,
    Reduce,
    Scan,
    Value,
    once_per_kernel,
    with_expressions,
)
from fxstack_inductor.ir.scalar_ops import COMPARISONS

MAX_PARTS = 8
"""Largest number of parts of a loop; each part is code of its own."""
MAX_ROW_RANGES = 4
"""The same for a loop of rows, whose ranges do not begin at zero."""


@once_per_kernel
def segments(kernel: Kernel) -> list[Kernel]:
    """Return ``kernel`` as parts, one for each range of its last outer loop.

    In each range, the conditions on this loop are constant.

    ``PointsWriter`` writes one C loop per range. A kernel without such conditions stays whole.
    """
    loop = kernel.outer[-1] if kernel.outer else None
    size = None if loop is None else loop.extent.as_int()
    if loop is None or size is None:
        return [kernel]
    return _parts(kernel, loop, size, _cuts(kernel, loop.var))


def wraps(kernel: Kernel, loop: Loop) -> list[Kernel]:
    """Return ``kernel`` as parts, one for each range of ``loop`` in which the remainders in the indices of loads only count up.

    A kernel whose loads have no such remainders stays whole.
    """
    size = loop.extent.as_int()
    indices = [value.index for value in kernel.values if isinstance(value, Load)]
    if size is None:
        return [kernel]
    return _parts(kernel, loop, size, (cut for index in indices for cut in _atom_cuts(index, loop.var)))


def row_ranges(kernel: Kernel, loop: Loop) -> list[tuple[int, int, Kernel]]:
    """Return the ranges of ``loop`` between the changes of conditions: start, stop, and ``kernel`` with these decided.

    The list is empty if there are no changes, or too many.
    """
    size = loop.extent.as_int()
    if size is None:
        return []
    cuts = sorted({cut for cut in _cuts(kernel, loop.var) if 0 < cut < size})
    if not 0 < len(cuts) < MAX_ROW_RANGES:
        return []
    found = []
    for start, stop in zip([0, *cuts], [*cuts, size], strict=True):
        values = _part(kernel, loop, start, stop).values
        truths = {k: value for k, value in enumerate(values) if value in {TRUE, FALSE}}
        found.append((start, stop, _substitute(kernel, {}, truths)))
    return found


def _parts(kernel: Kernel, loop: Loop, size: int, found: Iterable[int]) -> list[Kernel]:
    """Return ``kernel`` with ``loop``, of ``size`` points, divided at the points ``found``; whole if they are too many."""
    cuts = sorted({cut for cut in found if 0 < cut < size})
    # Each part repeats the body of the loop, so many parts cost compile time and instruction cache.
    if not cuts or len(cuts) >= MAX_PARTS:
        return [kernel]
    return [_part(kernel, loop, a, b) for a, b in zip([0, *cuts], [*cuts, size], strict=True)]


def _part(kernel: Kernel, loop: Loop, start: int, stop: int) -> Kernel:
    """Return ``kernel`` for the values ``start`` to ``stop`` of the outer loop ``loop``."""
    extent = integer(stop - start)
    var = Var(loop.var.name, VarKind.LOOP, extent)
    outer = tuple(Loop(var, extent) if other is loop else other for other in kernel.outer)
    return _substitute(replace(kernel, outer=outer), {loop.var: of_atom(var) + start}, {})


def assume(kernel: Kernel, position: int, *, holds: bool) -> Kernel:
    """Return ``kernel`` simplified, given whether the condition at ``position`` holds.

    A loop that then stays below a number has fewer points, which may decide other conditions.
    """
    fixed = _substitute(kernel, {}, {position: TRUE if holds else FALSE})
    value = kernel.values[position]
    if not isinstance(value, Compute) or value.op not in COMPARISONS:
        return fixed
    left, right = (_as_indices(kernel.values[k]) for k in value.args)
    for loop in kernel.outer if left and right else ():
        cuts = list(_changes(value.op, left[0] - right[0], loop.var))
        if len(cuts) == 1 and 0 < cuts[0] < (loop.extent.as_int() or 0):
            last = (left[0] - right[0]).subs({loop.var: integer(cuts[0] - 1)}).as_int() or 0
            fixed = _part(fixed, loop, 0, cuts[0]) if getattr(operator, value.op)(last, 0) == holds else fixed
    return fixed


def folded(kernel: Kernel) -> Kernel:
    """Return ``kernel`` with the values that constants and bounds decide; all positions stay."""
    return _substitute(kernel, {}, {})


def invariant_condition(kernel: Kernel, needed: list[int]) -> int | None:
    """Return the position of a condition that a selection in ``needed`` uses and the last loop does not change.

    Return None if there is no such condition.
    """
    used = {k for position in needed for k in _selectors(kernel.values[position])}
    for position in needed:
        changes = not isinstance(kernel.values[position], Constant)
        if position in used and changes and _on_coordinates(kernel, position, kernel.outer[-1].var):
            return position
    return None


def _selectors(value: Value) -> tuple[int, ...]:
    """Return the positions of the conditions that decide which value ``value`` takes."""
    match value:
        case Load(_, _, _, mask, _) if mask is not None:
            return (mask,)
        case Compute("where", args):
            return args[:1]
        case _:
            return ()


def _on_coordinates(kernel: Kernel, position: int, last: Var) -> bool:
    """Whether the value depends only on loop variables other than ``last``, and reads no memory."""
    value = kernel.values[position]
    match value:
        case IndexValue(expr):
            return all(v.kind is VarKind.LOOP and v != last for v in expr.variables)
        case Constant():
            return True
        case Compute():
            return all(_on_coordinates(kernel, k, last) for k in value.args)
        case _:
            return False


# --- where conditions change --------------------------------------------------------------------------


def _cuts(kernel: Kernel, var: Var) -> Iterator[int]:
    """Yield the values of ``var`` at which a condition or an index expression of ``kernel`` may change its form."""
    for value in kernel.values:
        match value:
            case Compute(op, args) if op in COMPARISONS:
                left, right = (kernel.values[k] for k in args)
                for a in _as_indices(left):
                    for b in _as_indices(right):
                        yield from _changes(op, a - b, var)
            case Load(_, index) | IndexValue(index):
                yield from _atom_cuts(index, var)
            case _:
                pass


def _as_indices(value: Value) -> list[Expr]:
    """Return an integer value as an index expression, in a list; an empty list for another value."""
    match value:
        case IndexValue(expr):
            return [expr]
        case Constant(text, dtype) if not dtype.is_floating_point and dtype is not torch.bool:
            return [integer(int(text))]
        case _:
            return []


def _atom_cuts(index: Expr, var: Var) -> Iterator[int]:
    """Yield the values of ``var`` at which an extremum or a remainder inside ``index`` changes its form."""
    for atom in index.atoms():
        match atom:
            case Extremum(_, left, right):
                yield from _changes("lt", left - right, var)
            case Mod(num, den) if (size := den.as_int()) is not None:
                low, high = num.bounds()
                if low is not None and high is not None:
                    for whole in range(low // size, min(high // size, low // size + MAX_PARTS) + 1):
                        yield from _changes("lt", num - whole * size, var)
            case _:
                pass


def _changes(op: str, difference: Expr, var: Var) -> Iterator[int]:
    """Yield the values of ``var`` at which the truth of ``difference op 0`` may change."""
    slope = difference.coefficient(var)
    step = None if slope is None else slope.as_int()
    if not step:
        return
    start = (difference - of_atom(var) * step).as_int()
    if start is None:
        return
    at = -start // step if step > 0 else start // -step
    exact = start % step == 0
    if op in {"eq", "ne"}:
        yield from (at, at + 1) if exact else ()
    elif (op in {"lt", "ge"}) == (step > 0):
        yield at if exact else at + 1
    else:
        yield at + 1


# --- folding ------------------------------------------------------------------------------------------


def _substitute(kernel: Kernel, loops: Mapping[Var, Expr], constants: Mapping[int, Constant]) -> Kernel:
    """Return ``kernel`` with loop variables and constant values replaced; all positions stay."""
    values: list[Value] = []
    same: dict[int, int] = {}
    mapping = dict(loops)
    for position, value in enumerate(kernel.values):
        folded = constants.get(position) or _fold(_substituted(value, mapping, same), values)
        if isinstance(folded, int):
            same[position] = folded
            mapping[_name(position)] = value_var(f"v{folded}")
            folded = values[folded]
        values.append(folded)
    stores = tuple(
        replace(s, index=s.index.subs(mapping), value=same.get(s.value, s.value)) for s in kernel.stores
    )
    return replace(kernel, values=tuple(values), stores=stores)


def _name(position: int) -> Var:
    """Return the variable of the value at ``position`` in index expressions."""
    return Var(f"v{position}", VarKind.VALUE)


def _substituted(value: Value, mapping: Mapping[Var, Expr], same: Mapping[int, int]) -> Value:
    """Return ``value`` with variables replaced, and with positions of equal values replaced by the first position."""

    def at(position: int | None) -> int | None:
        return None if position is None else same.get(position, position)

    value = with_expressions(value, lambda expr: expr.subs(mapping))
    match value:
        case Load(_, _, _, mask, other):
            return replace(value, mask=at(mask), other=at(other))
        case Check(arg, _, _, mask):
            return replace(value, arg=same.get(arg, arg), mask=at(mask))
        case Compute(_, args) | Reduce(_, args) | Scan(_, args):
            return replace(value, args=tuple(same.get(k, k) for k in args))
        case Constant() | IndexValue():
            return value


def _fold(value: Value, values: list[Value]) -> Value | int:
    """Return a simpler form of ``value``: another value, or the position of an earlier one."""
    match value:
        case Load(_, _, _, mask, other) if mask is not None:
            if values[mask] == TRUE:
                return replace(value, mask=None, other=None)
            return other if values[mask] == FALSE and other is not None else value
        case Check(_, _, _, mask) if mask is not None:
            if values[mask] == TRUE:
                return replace(value, mask=None)
            return Constant("0", torch.int64) if values[mask] == FALSE else value
        case Compute(op, args):
            return _fold_compute(value, op, args, values)
        case _:
            return value


def _truth(op: str, left: Value, right: Value) -> bool | None:
    """Return the truth of a comparison that constants or bounds decide, else None."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return bool(getattr(operator, op)(_number(left), _number(right)))
    a, b = _as_indices(left), _as_indices(right)
    return decided(op, a[0], b[0]) if a and b else None


def _number(value: Constant) -> float:
    """Return the number of a constant, rounded to its dtype."""
    text = {"True": "1", "False": "0"}.get(value.text, value.text)
    if not value.dtype.is_floating_point:
        return int(text)
    return float(torch.tensor(float(text), dtype=value.dtype))


def _fold_compute(value: Compute, op: str, args: tuple[int, ...], values: list[Value]) -> Value | int:
    """Return a constant for a decided comparison, or the argument that a selection or conjunction equals."""
    if op in COMPARISONS:
        truth = _truth(op, *(values[k] for k in args))
        return value if truth is None else TRUE if truth else FALSE
    if op == "where" and values[args[0]] in {TRUE, FALSE}:
        return args[1] if values[args[0]] == TRUE else args[2]
    if op in {"bitwise_and", "bitwise_or"} and value.dtype is torch.bool:
        neutral, final = (TRUE, FALSE) if op == "bitwise_and" else (FALSE, TRUE)
        for operand, rest in (args, args[::-1]):
            if values[operand] == neutral:
                return rest
            if values[operand] == final:
                return final
    return value
