"""Choose the loop structure of a kernel, and write the kernel's C function."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fxstack_inductor.codegen.c.function import FunctionWriter, pass_sharing
from fxstack_inductor.codegen.c.loops import PIECE, LoopWriter, Writer, flagged
from fxstack_inductor.codegen.c.pointwise.far_reads import along_far_reads
from fxstack_inductor.codegen.c.pointwise.interleaved import InterleavedWriter, interleaved
from fxstack_inductor.codegen.c.pointwise.points import PointsWriter
from fxstack_inductor.codegen.c.pointwise.tiles import TileWriter, crosses
from fxstack_inductor.codegen.c.pointwise.unrolled import too_short, unrolled
from fxstack_inductor.codegen.c.pointwise.wide_points import WidePointsWriter, wide_points
from fxstack_inductor.codegen.c.positions import with_positions
from fxstack_inductor.codegen.c.ranges import ranges
from fxstack_inductor.codegen.c.reductions.columns import ColumnWriter
from fxstack_inductor.codegen.c.reductions.copies import copies, worthwhile
from fxstack_inductor.codegen.c.reductions.crossing import crossing
from fxstack_inductor.codegen.c.reductions.scan_rows import ScanWriter, row_loop, slow_scans
from fxstack_inductor.codegen.c.reductions.short_rows import ShortRowWriter, short_rows
from fxstack_inductor.codegen.c.reductions.turned import TurnedWriter, turned
from fxstack_inductor.codegen.c.reductions.variance import in_one_pass
from fxstack_inductor.codegen.c.reductions.wide_rows import WideColumnWriter, wide_rows
from fxstack_inductor.codegen.c.scatter import ScatterWriter
from fxstack_inductor.codegen.c.sharing import share
from fxstack_inductor.codegen.c.streams import fenced
from fxstack_inductor.codegen.c.text import parameters
from fxstack_inductor.codegen.c.threads import KERNEL, definition, either, team, threaded, work_condition
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import Expr, Var, product
from fxstack_inductor.ir.kernel import Compute, Kernel, Load, Reduce, once_per_kernel
from fxstack_inductor.ir.scalar_ops import EXPENSIVE

FEW_POINTS = 8
"""With fewer outer points than this, threads share the inner loop."""
FEW, FEW_OF_FUNCTIONS = 16, 63
"""The most elements of a row across memory that is too short for blocks of such rows, and of one with slow functions.

Softmax of transposed images takes 0.2 to 0.9 of the time, reductions without functions 0.7 to 1.0.
"""
LANES = 8
"""Fewer columns than this make no whole vector."""
MIN_TEAM_POINTS = 1 << 14
"""Inner loops of this length justify a thread team per outer point, if threads cannot share outer points."""
LOCATED = frozenset({"columns", "short_rows"})
"""The loop structures in which a vector of positions goes with a vector of extremes."""


@once_per_kernel
def strategy(kernel: Kernel) -> str:
    """Return the name of the loop structure.

    ``points``: no inner loops; ``wide_points``: no inner loops, and short rows without gaps; ``tiles``: no inner
    loops, but some memory lies across the last loop; ``rows``: the inner loops run along memory; ``columns``: the
    inner loops run across memory; ``whole``: few outer points, and threads share the inner loops; ``scatter``:
    stores may collide, and the inner loops keep their order; ``checks``: nothing is written.
    """
    if kernel.only_checks:
        return "checks"
    if kernel.scatters:
        return "scatter"
    if not kernel.inner:
        if wide_points(kernel) is not None:
            return "wide_points"
        if interleaved(kernel):
            return "interleaved"
        return "tiles" if crosses(kernel) else "points"
    if short_rows(kernel) is not None:
        return "short_rows"
    reduces = [v for v in kernel.values if isinstance(v, Reduce)]
    if kernel.ordered:
        if _across(kernel):
            return "columns"
        return "rows" if row_loop(kernel) is None else "scans_of_rows"
    if not reduces:
        return "rows"
    located = any(r.op.startswith("arg") for r in reduces)
    if not located and _few_points(kernel) and _passes_shared(kernel):
        return "whole"
    if _across(kernel):
        return "columns"
    return "rows" if turned(kernel) is None else "turned_rows"


def _few_points(kernel: Kernel) -> bool:
    """Whether there are too few outer points for threads to share them."""
    points = product(loop.extent for loop in kernel.outer).as_int()
    if points is None or points < FEW_POINTS:
        return points is not None
    inner = product(loop.extent for loop in kernel.inner).as_int()
    long = inner is not None and inner >= MIN_TEAM_POINTS
    return long and share(kernel, ranges(kernel.outer), kernel.stores) is None


def _passes_shared(kernel: Kernel) -> bool:
    """Whether threads can share each pass over the inner loops."""
    facts = analyse(kernel)
    stores = [facts.stores(stage, inner=True) for stage in range(facts.last_stage + 1)]
    return all(pass_sharing(kernel, found) is not None for found in stores)


def _across(kernel: Kernel) -> bool:
    """Whether most accesses in the inner loops lie across memory; loads that are equal for all columns do not count.

    If no access lies along the inner loops, loads outside of them that lie along the columns decide.
    """
    if not kernel.outer:
        return False
    inner, outer = kernel.inner[-1].var, kernel.outer[-1].var
    facts = analyse(kernel)
    loads, beside = Counter[bool](), 0
    for value, in_rows in zip(kernel.values, facts.inner, strict=True):
        if not isinstance(value, Load):
            continue
        if not in_rows:
            beside += value.index.coefficient(outer) == 1
            continue
        loads[False] += outer in value.index.variables and _steps_less(value.index, inner, outer)
        loads[True] += _steps_less(value.index, outer, inner)
    stores = Counter(
        crosses
        for store in kernel.stores
        for crosses, var, other in ((False, inner, outer), (True, outer, inner))
        if facts.store_inner(store) and _steps_less(store.index, var, other)
    )
    along, across = (loads[crosses] + stores[crosses] for crosses in (False, True))
    if not across:
        return not along and beside > 0
    if across > along:
        return True
    in_rows = turned(kernel) is not None and not stores[True] and not _scans_wait(kernel)
    in_rows = in_rows and (loads[False] > 0 or not _few_across(kernel))
    return not in_rows and (_copies_all(kernel, along) or (across == along and loads[True] > loads[False]))


def _few_across(kernel: Kernel) -> bool:
    """Whether rows across memory, as of transposed images, are too short for blocks of such rows."""
    size = kernel.inner[-1].extent.as_int() or PIECE
    inner = (v for v, inside in zip(kernel.values, analyse(kernel).inner, strict=True) if inside)
    slow = any(isinstance(v, Compute) and v.op in EXPENSIVE for v in inner)
    return size <= (FEW_OF_FUNCTIONS if slow else FEW)


def _scans_wait(kernel: Kernel) -> bool:
    """Whether the scans of rows, also sums of integers beside reductions, take longer than copies with rows as lanes."""
    beside = kernel.ordered and any(isinstance(v, Reduce) for v in kernel.values)
    return beside or slow_scans(kernel)


def _copies_all(kernel: Kernel, along: int) -> bool:
    """Whether vectors across memory may copy all of the ``along`` accesses that lie along the rows."""
    found = worthwhile(copies(kernel, kernel.outer[-1]))
    return found is not None and len(found.loads) + len(found.stores) == along


def _steps_less(index: Expr, var: Var, other: Var) -> bool:
    """Whether neighbouring points of the loop over ``var`` are closer in memory than those of ``other``."""
    step, beyond = index.coefficient(var), index.coefficient(other)
    if step is None or step == 0:
        return False
    if step == 1:
        return True
    ours, theirs = step.as_int(), None if beyond is None else beyond.as_int()
    return ours is not None and theirs is not None and abs(ours) < abs(theirs)


def function_text(kernel: Kernel, grain: int) -> str:
    """Return the C definition of ``kernel`` as function ``KERNEL``; ``c_source`` calls this for each kernel."""
    if strategy(kernel) != "wide_points":
        kernel = _with_short_rows(unrolled(kernel, across=bool(kernel.inner) and _across(kernel)))
        kernel = _in_fewer_passes(along_far_reads(_with_long_columns(kernel)))
    text, conditional = _function_text(kernel, grain)
    begin = "FUNCTION_BEGIN STRAIGHT" if conditional <= _scalars(kernel) else "FUNCTION_BEGIN"
    return f"{begin}\n{text}\nFUNCTION_END"


def _in_fewer_passes(kernel: Kernel) -> Kernel:
    """Return ``kernel`` with one pass for variances, and across memory for positions of extremes, in place of two."""
    kernel = in_one_pass(kernel)
    located = with_positions(kernel)
    alike = strategy(located) == strategy(kernel) and (wide_rows(kernel) is None)
    return located if alike and strategy(kernel) in LOCATED else kernel


def _with_short_rows(kernel: Kernel) -> Kernel:
    """Return a kernel of points with its last loop as rows, if that is too short for a vector loop of slow functions."""
    if kernel.inner or not too_short(kernel):
        return kernel
    rows = replace(kernel, outer=kernel.outer[:-1], inner=kernel.outer[-1:])
    return kernel if short_rows(rows) is None else rows


def _with_long_columns(kernel: Kernel) -> Kernel:
    """Return a kernel of few columns with its longest outer loop as columns, if what is contiguous along the few is copied."""
    lengths = [loop.extent.as_int() for loop in kernel.outer]
    if not kernel.inner or len(lengths) < 2 or lengths[-1] is None or lengths[-1] >= LANES:
        return kernel
    longest = max(range(len(lengths)), key=lambda k: lengths[k] or 0)
    if (lengths[longest] or 0) < PIECE or strategy(kernel) != "columns":
        return kernel
    others = (*kernel.outer[:longest], *kernel.outer[longest + 1 :])
    moved = replace(kernel, outer=(*others, kernel.outer[longest]))
    return moved if crossing(moved) is not None and strategy(moved) == "columns" else kernel


def _scalars(kernel: Kernel) -> frozenset[int]:
    """Return the values outside of vector loops. If no other value has a condition, ``STRAIGHT`` vectorises more."""
    in_rows = strategy(kernel) in {"rows", "turned_rows"} or (
        strategy(kernel) == "whole" and not _across(kernel)
    )
    return analyse(kernel).outer if in_rows else frozenset()


def _function_text(kernel: Kernel, grain: int) -> tuple[str, set[int]]:
    """Return the C definition, with one version for threads and one for a single thread where both are needed.

    Return beside it the positions of the values that read or check under a condition.
    """
    chosen, condition = strategy(kernel), work_condition(kernel, grain)
    head = f"void {KERNEL}({', '.join(parameters(kernel))})"
    if chosen == "whole":
        alone = _written("columns" if _across(kernel) else "rows", kernel, None)
        if condition is None:
            return definition(head, alone.lines), alone.conditional
        out = _written(chosen, kernel, grain)
        text = either(head, _all(condition, out), out.lines, alone.lines)
        return "\n".join([*out.functions, text]), out.conditional | alone.conditional
    out = _written(chosen, kernel, grain)
    if chosen == "wide_points" and not out.shared and condition is not None:
        many = _written("points", kernel, grain)
        if many.shared:
            part, start = team(f"{KERNEL}_part", parameters(kernel)[:-1], many.lines)
            text = either(head, _all(condition, many), [*many.first, f"  {start}"], out.lines)
            return f"{part}\n{text}", out.conditional | many.conditional
    if out.shared and condition is not None:
        return threaded(head, _all(condition, out), out.first, out.lines), out.conditional
    return definition(head, [*out.first, *out.lines]), out.conditional


def _all(condition: str, out: Writer) -> str:
    """Return the C condition for sharing loops: ``condition`` (enough work), and what the proof of ``share`` needs."""
    return " && ".join([condition, *sorted(out.conditions)])


def _written(chosen: str, kernel: Kernel, grain: int | None) -> Writer:
    """Return the code of ``kernel``, written by the method that strategy ``chosen`` names."""
    wide = chosen == "columns" and wide_rows(kernel) is not None
    kind = WideColumnWriter if wide else WRITERS.get(chosen, FunctionWriter)
    writer = kind(kernel, grain)
    getattr(writer, chosen)()
    writer.out.conditional = writer.names.conditional
    nothing = _where_nothing_is_done(kernel)
    writer.out.lines = fenced([*nothing, *writer.names.apart, *flagged(writer.out.lines, kernel)])
    writer.out.first[:0] = nothing if writer.out.first else []
    return writer.out


def _where_nothing_is_done(kernel: Kernel) -> list[str]:
    """Return early exits for empty loops around all stores: loads before them may have no valid address."""
    inside = all(map(analyse(kernel).store_inner, kernel.stores)) and not kernel.scatters
    loops = (*kernel.outer, *kernel.inner) if inside else kernel.outer
    return [f"  if ({c_index(loop.extent)} < 1) return;" for loop in loops if not loop.extent.is_positive()]


WRITERS: dict[str, type[LoopWriter]] = {
    "columns": ColumnWriter,
    "points": PointsWriter,
    "wide_points": WidePointsWriter,
    "tiles": TileWriter,
    "scatter": ScatterWriter,
    "checks": ScatterWriter,
    "scans_of_rows": ScanWriter,
    "turned_rows": TurnedWriter,
    "interleaved": InterleavedWriter,
    "short_rows": ShortRowWriter,
}
"""Writers of the strategies that ``FunctionWriter`` does not have."""
