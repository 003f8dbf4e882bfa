"""Rules of fusion for the CPU: loops that stay vectors are worth more than tensors that stay out of memory."""

# ruff: noqa: ARG001 - every fusion rule has the same signature
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from fxstack_inductor.ir.expr import ONE, Expr, Mod, Var, of_atom, product
from fxstack_inductor.ir.nodes import (
    HALF_DTYPES,
    Body,
    Call,
    Computed,
    Index,
    Masked,
    Node,
    Pointwise,
    Read,
    Reduction,
    substitution,
    walk,
)
from fxstack_inductor.ir.ordered import Scan
from fxstack_inductor.ir.scalar_ops import EXPENSIVE, SLOW_SCANS, scan_waits
from fxstack_inductor.schedule.fusion.inlining import ROW, reads_in_parts
from fxstack_inductor.schedule.fusion.loop_matching import Refusal
from fxstack_inductor.schedule.fusion.state import Access, FusionState, Group, is_known, loops_of
from fxstack_inductor.schedule.loops import VECTOR

KEPT_COLUMNS, KEPT = 64, 3 << 17
"""The fewest columns of a tile, and the most bytes of the values that a kernel keeps for a later pass over the tile."""
KEPT_ROW = 1 << 18
"""The most bytes of the values that a kernel keeps for a later pass over a row."""
FUNCTION, SCAN_STEP, FAR_READ = 3, 50, 5
"""What a slow function, a step of a slow scan, and a read at a place from memory take, in elements moved to or from memory.

A vector has half as many elements of 8 bytes as of 4, and a function of them takes more steps: both take long about as long.
"""
COPIED = 3
"""What a transposed copy on the way to or from memory takes, in elements moved."""
STORED = 4
"""What a tensor in memory takes in place of a second computation, in elements moved: a store, loads, with room for the guess."""

SHORT_ROW, ROWS = 128, 8
"""Rows up to this length are in blocks beside reductions, too; the rows of a block of scans alone."""
MOST_POINTS, MOST_PARTS = 8, 320
"""The most inner points, and the most parts of all their values, of a kernel that writes these out (``codegen.c.pointwise``)."""
LONG = 80
"""Loops of fewer columns than this are short: much of a row is in no whole vector."""
TILE = 1024
"""The most columns of a tile: longer rows are in pieces."""
PIECE = 64
"""The columns of a tile that copies operands which are contiguous along a third loop."""
STREAMS = 8
"""A processor fetches fewer streams than this ahead of short rows."""


def _keeps_scans_apart(fusion: FusionState, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse, on a CPU, reductions beside a slow scan along memory.

    A kernel of scans alone goes through several rows at once, in vectors; beside reductions, a row goes step by step.
    """
    if fusion.program.many_threads or not any(isinstance(n, Reduction) for n in merged.placed):
        return None
    for node in merged.placed:
        if isinstance(node, Scan) and node.layout.order[-1] == node.axis and _gains_from_rows(node):
            return Refusal("a reduction beside a slow scan", node.name)
    return None


def _gains_from_rows(scan: Scan) -> bool:
    """Whether a scan in blocks of rows saves more than a second pass over its elements costs.

    Short rows are in blocks beside reductions, too, and sums of integers take one step in each cycle of the processor.
    """
    if scan.op in SLOW_SCANS:
        return True
    length = scan.shape[scan.axis].as_int()
    rows = product(size for dim, size in enumerate(scan.shape) if dim != scan.axis).as_int()
    long = length is None or length > SHORT_ROW
    return long and (rows is None or rows >= ROWS) and scan_waits(scan.op, scan.state)


def _keeps_conditions_apart(fusion: FusionState, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse, on a CPU, conditional reads beside reductions and scans.

    The loops of a kernel without reductions are split where the conditions change; a loop with conditions is no vector loop.
    """
    if fusion.program.many_threads or not any(isinstance(n, (Reduction, Scan)) for n in merged.placed):
        return None
    conditional = [n for n in merged.placed if isinstance(n, Pointwise) and fusion.has(n, reads_in_parts)]
    if not conditional or (
        _is_written_out(merged) and all(_is_decided(merged, node) for node in conditional)
    ):
        return None
    return Refusal("conditional reads beside a reduction", conditional[0].name)


def _is_written_out(merged: Group) -> bool:
    """Whether the inner loops are so short that a kernel has a copy of their values for each inner point."""
    points = product(var.extent or 1 for var in merged.inner or ()).as_int()
    if points is None or any(isinstance(n, Scan) for n in merged.placed):
        return False
    parts = sum(1 for node in merged.placed for _ in walk(node.body))
    return points <= MOST_POINTS and points * parts <= MOST_PARTS


def _is_decided(merged: Group, node: Pointwise) -> bool:
    """Whether the inner point decides all conditions of ``node``, and where its remainders start again."""
    mapping, inner = substitution(node.index, merged.placed[node].coords), merged.inner or frozenset[Var]()
    parts = list(walk(node.body))
    masks = [part for mask in parts if isinstance(mask, Masked) for part in walk(mask.mask)]
    jumps = [part for part in parts if isinstance(part, Read) and reads_in_parts(part)]
    if not (masks or jumps) or any(isinstance(part, Read) for part in masks):
        return False
    exprs = [part.expr for part in masks if isinstance(part, Index)]
    coords = (coord for part in jumps for coord in part.coords if isinstance(coord, Expr))
    exprs += [of_atom(atom) for coord in coords for atom in coord.atoms() if isinstance(atom, Mod)]
    used = {var for expr in exprs for var in loops_of(expr)}
    return all(inner.issuperset(loops_of(mapping[var])) for var in used if var in mapping)


def _keeps_slow_functions_apart(
    fusion: FusionState, merged: Group, left: Group, right: Group
) -> Refusal | None:
    """Refuse, on a CPU, slow functions of a few columns beside reductions and scans across these.

    The vector loop would go over the few columns. Kernels of the functions alone go over all elements.
    """
    if fusion.program.many_threads or not any(isinstance(n, (Reduction, Scan)) for n in merged.placed):
        return None
    inner = merged.inner or frozenset()
    for node in merged.placed:
        if not isinstance(node, Pointwise) or not fusion.has(node, _is_slow):
            continue
        place = fusion.accesses_at(node, merged.placed[node])[0].place
        if inner and inner.isdisjoint(place.variables):
            continue  # computed once for all inner points
        last = next((v for v in merged.space if place.coefficient(v) == 1), None)
        size = None if last is None or last.extent is None else last.extent.as_int()
        if size is not None and size < VECTOR and last not in inner:
            return Refusal("slow functions of few columns", node.name)
    return None


def _is_slow(body: Body) -> bool:
    return isinstance(body, Call) and body.op in EXPENSIVE


def _keeps_directions_apart(fusion: FusionState, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse, on a CPU, reductions along memory beside elementwise results across it, and the reverse.

    One of both would step through memory by whole rows.
    """
    if fusion.program.many_threads or not any(isinstance(n, Reduction) for n in merged.placed):
        return None
    signs = [_direction(merged, _accesses(fusion, merged, group)) for group in (left, right)]
    return Refusal("along memory beside across memory") if signs[0] * signs[1] < 0 else None


def _keeps_transposed_apart(fusion: FusionState, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse, on a CPU, elementwise results along different loops if transposed copies take longer than the merge saves.

    A kernel of points, or of scans, goes along one loop, and copies what is contiguous along another.
    """
    if fusion.program.many_threads or any(isinstance(n, Reduction) for n in merged.placed):
        return None
    together = _moved(fusion, merged, merged)
    if not (copied := _copied(merged, together)):
        return None
    alone = [_moved(fusion, merged, group) for group in (left, right)]
    more = copied - sum(_copied(merged, moved) for moved in alone)
    if sum(map(len, alone)) - len(together) < COPIED * more:
        return Refusal("results along different loops", next(iter(right.placed)).name)
    return None


def _copied(merged: Group, moved: Mapping[Node, Expr]) -> int:
    """Return how many of the places ``moved`` do not lie along the loop that most lie along."""
    along = Counter(v for place in moved.values() for v in merged.space if place.coefficient(v) == 1)
    return along.total() - max(along.values(), default=0)


def _moved(fusion: FusionState, merged: Group, group: Group) -> dict[Node, Expr]:
    """Return the places of the tensors that ``group``, as a kernel, reads and stores in all loops of ``merged``."""
    found: dict[Node, Expr] = {}
    for node in group.placed:
        own, *reads = fusion.accesses_at(node, merged.placed[node])
        readers = set(fusion.usage.readers.get(node, ())) - fusion.inlined
        stored = node in fusion.usage.required or not group.placed.keys() >= readers
        moved = [own] if stored else []
        moved += [read for read in reads if read.tensor not in group.placed and read.is_known]
        found |= {
            access.tensor: access.place for access in moved if access.place.variables.issuperset(merged.space)
        }
    return found


def _keeps_repeats_apart(fusion: FusionState, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse, on a CPU, a result that repeats reductions across memory and reads nothing else that changes along these.

    Such a result saves no read beside the reduction, and would be written tile by tile, not along memory.
    """
    inner = merged.inner or frozenset()
    if fusion.program.many_threads or not any(isinstance(n, Reduction) for n in merged.placed):
        return None
    for node in merged.placed:
        if not isinstance(node, Pointwise) or node not in fusion.usage.required:
            continue
        place = fusion.accesses_at(node, merged.placed[node])[0].place
        across = any(place.coefficient(var) == 1 for var in merged.space if var not in inner)
        if across and not inner.isdisjoint(place.variables) and not _reads_along(fusion, merged, node):
            return Refusal("a result that repeats a reduction", node.name)
    return None


def _keeps_slow_functions_in_one_pass(
    fusion: FusionState, merged: Group, left: Group, right: Group
) -> Refusal | None:
    """Refuse, on a CPU, a merge after which several passes compute slow functions whose values the kernel cannot keep.

    A kernel keeps the values of all reduced elements of a tile, or of a row, if they fit into a cache.
    """
    inner = merged.inner or frozenset()
    if fusion.program.many_threads or not inner or not any(isinstance(n, Reduction) for n in merged.placed):
        return None
    points = product(v.extent or 1 for v in inner).as_int()
    if points is None:
        return None
    before: dict[Computed, frozenset[int]] | None = None
    for node, passes in _passes(fusion, merged).items():
        if len(passes) < 2 or points * KEPT_COLUMNS * node.dtype.itemsize <= KEPT:
            continue
        if (len(passes) - 1) * _slow_work(fusion, merged, node) < STORED:
            continue
        before = before or {**_passes(fusion, left), **_passes(fusion, right)}
        row = (
            points * node.dtype.itemsize <= KEPT_ROW
            and _direction(merged, _accesses(fusion, merged, merged)) > 0
        )
        if len(before[node]) < len(passes) and not row:
            return Refusal("slow functions in several passes", node.name)
    return None


def _passes(fusion: FusionState, group: Group) -> dict[Computed, frozenset[int]]:
    """Return the passes over the inner loops that compute each tensor of ``group`` but its reductions' results.

    A pass needs what its reductions take in and what is stored in it.
    """
    order = sorted(group.placed, key=lambda n: fusion.position[id(n)])
    first: dict[Node, int] = {}
    for node in order:
        inside = [r.node for r in fusion.reads(node) if r.node in first]
        first[node] = max((first[n] + isinstance(n, Reduction) for n in inside), default=0)
    found: dict[Node, set[int]] = {node: set() for node in order}
    for node in reversed(order):
        stored = not group.placed.keys() >= set(fusion.usage.readers.get(node, ())) - fusion.inlined
        if isinstance(node, Reduction) or stored or node in fusion.usage.required:
            found[node].add(first[node])
        for read in fusion.reads(node):
            if read.node in found:
                found[read.node] |= {first[node]} if isinstance(node, Reduction) else found[node]
    return {
        n: frozenset(p) for n, p in found.items() if isinstance(n, Computed) and not isinstance(n, Reduction)
    }


def _slow_work(fusion: FusionState, group: Group, node: Computed) -> int:
    """Return what it takes to compute an element of ``node`` in ``group``, in elements moved to or from memory."""
    seen: set[Node] = set()
    waiting: list[Node] = [node]
    work = 0
    while waiting:
        tensor = waiting.pop()
        inside = tensor in group.placed or tensor in fusion.inlined
        if tensor in seen or not inside or isinstance(tensor, Reduction) or not isinstance(tensor, Computed):
            continue
        seen.add(tensor)
        waiting += [read.node for read in tensor.reads]
        work += sum(FUNCTION for part in walk(tensor.body) if _is_slow(part))
        work += sum(FAR_READ for part in walk(tensor.body) if _is_far(part))
        work += SCAN_STEP if isinstance(tensor, Scan) and tensor.op in SLOW_SCANS else 0
    return work


def _is_far(body: Body) -> bool:
    """Whether this reads an element at a place from memory."""
    return isinstance(body, Read) and not all(map(is_known, body.coords))


def _is_far_half(body: Body) -> bool:
    """Whether this reads a half-precision element at a place from memory."""
    return isinstance(body, Read) and body.node.dtype in HALF_DTYPES and _is_far(body)


def _keeps_far_reads_apart(fusion: FusionState, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse, on a CPU, reads at places from memory within long rows beside reductions across these rows.

    Such a kernel goes through all rows tile by tile, so that each tile reads from all of the rows. Half-precision
    elements, which are read and converted one by one in the loop over the columns, take longer in rows of any length.
    """
    inner = merged.inner or frozenset()
    if fusion.program.many_threads or not any(isinstance(n, Reduction) for n in merged.placed):
        return None
    for node in merged.placed:
        if not isinstance(node, Pointwise) or inner.isdisjoint(merged.placed[node].variables):
            continue
        if not fusion.has(node, _is_far):
            continue
        place = fusion.accesses_at(node, merged.placed[node])[0].place
        last = next((v for v in merged.space if place.coefficient(v) == 1), None)
        row = None if last is None or last.extent is None else last.extent.as_int()
        slow = fusion.has(node, _is_far_half) or (row is not None and row * node.dtype.itemsize > ROW)
        if row is not None and last not in inner and slow:
            return Refusal("reads at places from memory beside a reduction across memory", node.name)
    return None


def _keeps_columns_long(fusion: FusionState, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse, on a CPU, elementwise results whose operands divide the columns of a reduction across memory into short rows.

    The vector loop would go over such a row, and the kernel would step through memory by pieces of a row.
    """
    if fusion.program.many_threads or _columns(fusion, merged) >= LONG:
        return None
    for group, other in ((left, right), (right, left)):
        beside = all(isinstance(node, Pointwise) for node in other.placed)
        if beside and _columns(fusion, group) >= LONG and _costs_more(fusion, merged, group, other):
            return Refusal("a reduction of long columns beside short rows", next(iter(group.placed)).name)
    return None


def _costs_more(fusion: FusionState, merged: Group, group: Group, other: Group) -> bool:
    """Whether short rows cost the reductions in ``group`` more than a second pass over the operands of ``other``.

    A few streams through memory are fast in short rows, too.
    """
    if any(fusion.has(node, _is_slow) for node in group.placed):
        return True
    length = product(var.extent or ONE for var in merged.inner or ()).as_int()
    full = any(merged.placed[node].variables == frozenset(merged.space) for node in other.placed)
    return full and (length is None or length >= STREAMS)


def _keeps_functions_out_of_pieces(
    fusion: FusionState, merged: Group, left: Group, right: Group
) -> Refusal | None:
    """Refuse, on a CPU, slow functions beside reductions of long rows across memory that share operands with them alone.

    The kernel goes through memory by pieces of rows, and the functions leave no registers to the partial results: it took 1.0 to
    1.7 times as long as two kernels.
    """
    if fusion.program.many_threads or _columns(fusion, merged) <= TILE:
        return None
    for group, other in ((left, right), (right, left)):
        slow = next((n for n in other.placed if fusion.has(n, _is_slow)), None)
        if slow is None or any(fusion.has(n, _is_slow) for n in group.placed):
            continue  # both may use the same functions
        alone = all(isinstance(node, Pointwise) for node in other.placed)
        reads = [{r.node for node in part.placed for r in fusion.reads(node)} for part in (group, other)]
        if alone and reads[0].isdisjoint(other.placed) and reads[1].isdisjoint(group.placed):
            return Refusal("slow functions beside pieces of rows", slow.name)
    return None


def _columns(fusion: FusionState, group: Group) -> int:
    """Return the number of columns, neighbours in memory, that one loop of ``group`` goes over.

    The number is 0 for inner loops along memory, and without inner loops. Loops of unknown length count as ``LONG``.
    """
    inner = group.inner or frozenset()
    outer = [var for var in group.space if var not in inner]
    places = [access.place for access in _accesses(fusion, group, group)]
    # A result of each row is contiguous along the rows, and says nothing about the operands.
    reads = [place for place in places if not inner.isdisjoint(place.variables)]
    counts = Counter(var for place in reads for var in group.space if place.coefficient(var) == 1)
    column = max(group.space, key=lambda var: (counts[var], var in inner), default=None)
    if column is None or column in inner or not inner:
        return 0
    if any(_is_across(place, column) and any(place.coefficient(v) == 1 for v in outer) for place in places):
        return PIECE
    size = ONE
    found: Var | None = column
    while found is not None:
        size, outer = size * (found.extent or ONE), [var for var in outer if var != found]
        found = next((v for v in outer if all(_goes_on(p, v, column, size) for p in places)), None)
    return LONG if (number := size.as_int()) is None else number


def _is_across(place: Expr, column: Var) -> bool:
    """Whether ``place`` jumps from column to column."""
    step = place.coefficient(column)
    return step is not None and step.as_int() not in {0, 1}


def _goes_on(place: Expr, var: Var, column: Var, size: Expr) -> bool:
    """Whether a step of ``var`` moves ``place`` as far as ``size`` steps of ``column``."""
    step, beyond = place.coefficient(column), place.coefficient(var)
    return step is not None and beyond is not None and beyond == step * size


def _reads_along(fusion: FusionState, merged: Group, node: Pointwise) -> bool:
    """Whether ``node`` reads something that changes along the inner loops of ``merged``, or at unknown places."""
    inner = merged.inner or frozenset()
    for read in fusion.accesses_at(node, merged.placed[node])[1:]:
        if not read.is_known:
            return True
        place = read.place
        if isinstance(tensor := read.tensor, Computed) and tensor in merged.placed:
            place = fusion.accesses_at(tensor, merged.placed[tensor])[0].place
        if not inner.isdisjoint(place.variables):
            return True
    return False


def _accesses(fusion: FusionState, merged: Group, group: Group) -> Iterable[Access]:
    """Yield what ``group`` reads and stores at known places."""
    for node in group.placed:
        own, *reads = fusion.accesses_at(node, merged.placed[node])
        if node in fusion.usage.required:
            yield own
        yield from (read for read in reads if read.tensor not in merged.placed and read.is_known)


def _direction(merged: Group, accesses: Iterable[Access]) -> int:
    """Return a number above 0 if most accesses run along the inner loops of ``merged``, below 0 if most run across.

    Accesses that do not change along the inner or the outer loops, and accesses of unknown strides, do not count.
    """
    votes = 0
    inner = merged.inner or frozenset()
    for access in accesses:
        steps = {var: access.place.coefficient(var) for var in merged.space}
        known = {
            var: abs(number) for var, step in steps.items() if step is not None and (number := step.as_int())
        }
        if known and inner & known.keys() and known.keys() - inner:
            votes += 1 if min(known, key=lambda var: known[var]) in inner else -1
    return votes


CPU_RULES = (
    _keeps_scans_apart,
    _keeps_conditions_apart,
    _keeps_slow_functions_apart,
    _keeps_directions_apart,
    _keeps_transposed_apart,
    _keeps_repeats_apart,
    _keeps_slow_functions_in_one_pass,
    _keeps_far_reads_apart,
    _keeps_columns_long,
    _keeps_functions_out_of_pieces,
)
"""The requirements of a merge on a CPU, in order."""
