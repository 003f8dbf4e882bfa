"""Split reductions that would occupy too few GPU processors: partial results first, then their reduction.

``sum(x[n])`` becomes ``sum over s of p[s]`` with ``p[s] = sum over c of x[s*C + c]``. Only the sizes and the
direction of memory decide which reductions are split, so that reductions that could share a loop nest can
still share it. Sums over columns of what another reduction reads by rows are the exception: they get as many
parts as a kernel over the rows needs programs (``schedule.column_sums``).

The parts are the last dimension of ``p``. Where neighbours in memory belong to different results, the parts are
the first dimension, so that neighbours stay neighbours. Arg-reductions are split into the best values of the
parts and their positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fxstack_inductor.ir.expr import ZERO, Expr, Var, floordiv, integer, loop_var, mod, product
from fxstack_inductor.ir.nodes import (
    Body,
    Call,
    Const,
    ExternCall,
    Index,
    Masked,
    Node,
    Pointwise,
    Read,
    Reduction,
    contiguous_layout,
    substituted,
    substitution,
    value_dtype,
    walk,
)
from fxstack_inductor.ir.ordered import PERSISTENT
from fxstack_inductor.ir.scalar_ops import identity
from fxstack_inductor.lower.program import HostCall, Program
from fxstack_inductor.lower.reductions.centred import Centred, Split, Term, find_centred, part_length

PROGRAMS = 512
"""The number of programs that fills a large GPU several times over."""
ROW = 2048
"""The smallest number of elements along memory that one program reduces."""
WHOLE = PERSISTENT
"""Reductions of at most this length along memory are not split.

One tile holds all elements, so that operations before and after the reduction use the same tile. Two more
launches and memory round trips would be slower.
"""
COLUMN = 64
"""The smallest number of elements across memory that one program reduces, and the number of columns that it covers."""
SHORT_COLUMN = 512
"""Reductions of at most this length across memory are not split: a few tiles take less time than a second launch."""


ROW_PROGRAMS = (128, 256)
"""The least and the largest number of programs of a kernel over rows that begins sums over columns."""

POSITIONS = {"argmax": "max", "argmin": "min"}
"""Reduction that returns positions -> reduction that returns the values at these positions."""


def split_reductions(program: Program) -> None:
    """Split the reductions of ``program`` in place."""
    steps: list[Node | ExternCall | HostCall] = []
    splits: dict[Node, Split] = {}
    by_rows = _read_by_rows(program)
    for step in program.steps:
        if isinstance(step, Reduction) and (parts := _parts(step)) > 1:
            steps += _split(step, _parts_of_rows(step, by_rows) or parts, splits)
        steps.append(step)
    program.steps = steps


def _parts(node: Reduction) -> int:
    """Return the number of parts into which a reduction is split; 1 leaves the reduction as it is."""
    points, count = product(node.shape).as_int(), product(node.ranges).as_int()
    if points is None or count is None or _neutral(node) is None:
        return 1
    across = _across(node)
    programs = -(-points // COLUMN) if across else points
    least = COLUMN if across else ROW
    if count <= (SHORT_COLUMN if across else WHOLE):
        return 1
    limit = min(PROGRAMS // max(programs, 1), count // least)
    # Enough programs run without a split, or the parts would be too few to pay for a launch and a round trip.
    if points == 0 or programs * 2 > PROGRAMS // 2 or limit < 2:
        return 1
    parts = 1 << (limit.bit_length() - 1)
    # Parts of equal length need no mask, if the largest power of two in the count gives nearly as many parts.
    even = count & -count
    if min(parts, even) * 2 >= parts:
        return min(parts, even)
    # Parts of this length leave none empty, whose mean would be that of no elements.
    return -(-count // -(-count // parts))


def _read_by_rows(program: Program) -> set[tuple[Node, int]]:
    """Return the tensors that reductions along memory read, each with the number of elements that are reduced."""
    found = set()
    for step in program.steps:
        if isinstance(step, Reduction) and (count := product(step.ranges).as_int()) and not _across(step):
            found |= {(node, count) for node in _sources(step)}
    return found


def _sources(node: Reduction) -> set[Node]:
    """Return the tensors of as many elements as ``node`` reduces in all that ``node`` reads, through elementwise tensors."""
    elements = product((*node.shape, *node.ranges)).as_int()
    found, waiting, seen = set(), [node.body], set[Node]()
    while waiting:
        for part in walk(waiting.pop()):
            if not isinstance(part, Read) or part.node in seen:
                continue
            seen.add(part.node)
            if isinstance(part.node, Pointwise):
                waiting.append(part.node.body)
            if product(part.node.shape).as_int() == elements:
                found.add(part.node)
    return found


def _parts_of_rows(node: Reduction, by_rows: set[tuple[Node, int]]) -> int | None:
    """Return the number of parts for a sum over columns that a kernel over rows can begin; None: there is none.

    The parts have the same number of rows, so that programs of the kernel take the same number of rows.
    """
    columns, rows = product(node.shape).as_int() or 0, product(node.ranges).as_int() or 0
    if node.op != "sum" or columns > WHOLE or not _across(node):
        return None
    if not any((source, columns) in by_rows for source in _sources(node)):
        return None
    few, many = ROW_PROGRAMS
    return next((parts for parts in range(many, few - 1, -1) if rows % parts == 0), None)


def _neutral(node: Reduction) -> bool | float | None:
    """Return the neutral element for missing elements of the last part; None: the reduction is not split."""
    return identity(POSITIONS.get(node.op, node.op), node.body.dtype)


def _across(node: Reduction) -> bool:
    """Whether, in most reads of reduced elements, neighbours in memory belong to different results."""
    reduced = {v for e in node.reduced for v in e.variables}
    across = along = 0
    for part in walk(node.body):
        if not isinstance(part, Read):
            continue
        pairs = zip(part.coords, part.node.layout.stride, strict=True)
        index = sum((c * s for c, s in pairs if isinstance(c, Expr)), ZERO)
        if reduced.isdisjoint(index.variables):
            continue  # a number for each result, for example a channel's mean
        fast = [v for v in index.variables if _is_fast(index, v)]
        along += any(v in reduced for v in fast)
        across += any(v not in reduced for v in fast)
    return across > along


def _is_fast(index: Expr, var: Var) -> bool:
    """Whether the next value of ``var`` is the next element in memory, also where a reshape takes ``var`` apart."""
    if any(v.extent is None for v in index.variables):
        return index.coefficient(var) == 1
    first = {v.name: 0 for v in index.variables}
    return index.evaluate({**first, var.name: 1}) - index.evaluate(first) == 1


def _split(node: Reduction, parts: int, splits: dict[Node, Split]) -> list[Reduction]:
    """Return the partial reductions; ``node`` is changed to reduce their results. ``splits``: those before, by node."""
    if node.op in POSITIONS:
        return _split_positions(node, parts)
    across, part = _across(node), loop_var("r0", parts)
    dtype = value_dtype(node.dtype)
    centred = find_centred(node, parts, splits, across=across)
    coords = _part_coords(node, part)
    if centred is None:
        partial = _partial(node, node.op, dtype, parts)
        splits[node] = Split(node.body, node.op, across, parts, partial)
        _reduce_parts(node, node.op, Read(partial, coords), parts)
        return [partial]
    partials = [
        _partial(node, node.op, dtype, parts, _Summed(centred, name, term))
        for name, term in centred.terms().items()
    ]
    count = product(node.ranges).as_int() or 0
    _reduce_parts(node, node.op, centred.moved(partials, coords, part_length(part, count, parts)), parts)
    return partials


def _part_coords(node: Reduction, part: Expr) -> tuple[Expr, ...]:
    """Return the coordinates of one partial result: of part ``part`` of the element at ``node.index``."""
    return (part, *node.index) if _across(node) else (*node.index, part)


def _split_positions(node: Reduction, parts: int) -> list[Reduction]:
    """Return the reductions of an arg-reduction by parts; ``node`` then reduces their results.

    Each part has its best value and the position of that value. The result is the smallest position of the
    best value; NaN is best.
    """
    op, dtype = POSITIONS[node.op], node.body.dtype
    values = _partial(node, op, dtype, parts)
    positions = _partial(node, node.op, torch.int64, parts)
    size = positions.ranges[0]
    best = Reduction(
        name=f"{node.name}_best",
        layout=contiguous_layout(node.shape, dtype, node.device),
        origin=node.origin,
        comment=node.comment,
        body=node.body,
        op=op,
        ranges=node.ranges,
    )
    part = loop_var("r0", parts)
    coords = _part_coords(node, part)
    value = Read(values, coords)
    _reduce_parts(best, op, value, parts)
    is_best: Body = Call("eq", (value, Read(best, node.index)), torch.bool)
    if dtype.is_floating_point:
        unordered = Call("ne", (value, value), torch.bool)
        is_best = Call("bitwise_or", (is_best, unordered), torch.bool)
    at = Call("add", (Read(positions, coords), Index(part * size)), torch.int64)
    body = Call("where", (is_best, at, Const(2**63 - 1, torch.int64)), torch.int64)
    _reduce_parts(node, "min", body, parts)
    return [values, positions, best]


def _reduce_parts(node: Reduction, op: str, body: Body, parts: int) -> None:
    """Change ``node`` to reduce ``body`` over ``parts`` parts by ``op``."""
    node.op, node.ranges, node.body = op, (integer(parts),), body
    for derived in ("reduced", "position", "reads"):
        node.__dict__.pop(derived, None)


@dataclass(frozen=True, slots=True)
class _Summed:
    """What parts sum in place of the reduction's elements, and a name of the sum."""

    centred: Centred
    name: str
    term: Term


def _partial(
    node: Reduction, op: str, dtype: torch.dtype, parts: int, summed: _Summed | None = None
) -> Reduction:
    """Return ``op`` over each part of the elements that ``node`` reduces; the parts are a new dimension."""
    name = op if summed is None else summed.name
    count = product(node.ranges).as_int() or 0
    size, across = -(-count // parts), _across(node)
    shape = (integer(parts), *node.shape) if across else (*node.shape, integer(parts))
    partial = Reduction(
        name=f"{node.name}_parts" if name == node.op else f"{node.name}_{name}_parts",
        layout=contiguous_layout(shape, dtype, node.device),
        origin=node.origin,
        comment=node.comment,
        body=node.body,
        op=op,
        ranges=(integer(size),),
    )
    part, outer = (partial.index[0], partial.index[1:]) if across else (partial.index[-1], partial.index[:-1])
    flat = part * size + partial.reduced[0]
    mapping = substitution(node.index, outer) | _coordinates(node, flat)

    def present(body: Body, neutral: float) -> Body:
        """Return ``body``, or ``neutral`` behind the last element."""
        if size * parts == count:
            return body
        inside = Call("lt", (Index(flat), Index(integer(count))), torch.bool)
        value = float(neutral) if body.dtype.is_floating_point else neutral
        return Masked(inside, body, Const(value, body.dtype))

    if summed is None:
        neutral = identity(POSITIONS.get(op, op), node.body.dtype)
        assert neutral is not None
        partial.body = present(substituted(node.body, mapping), neutral)
        return partial
    value, length = substituted(summed.centred.value, mapping), part_length(part, count, parts)
    if summed.centred.squares:
        partial.body = present(summed.term(value, partial.index, length), 0.0)
    else:
        # The masked value is that of the partial maximum, so that one kernel computes it once.
        partial.body = summed.term(present(value, float("-inf")), partial.index, length)
    return partial


def _coordinates(node: Reduction, flat: Expr) -> dict[Var, Expr]:
    """Return the reduced coordinates of the flat position ``flat``, by their variables in ``node.reduced``."""
    mapping: dict[Var, Expr] = {}
    below = product(node.ranges)
    for index, extent in zip(node.reduced, node.ranges, strict=True):
        below = floordiv(below, extent)
        if (var := index.as_var()) is not None:
            digit = floordiv(flat, below)
            # The highest digit stays below its extent wherever the element exists.
            mapping[var] = digit if index is node.reduced[0] else mod(digit, extent)
    return mapping
