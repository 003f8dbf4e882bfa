"""Choose the loop structure of a kernel, and write the kernel's C function."""

from __future__ import annotations

from fxstack_inductor.codegen.c.function import FunctionWriter, pass_sharing
from fxstack_inductor.codegen.c.loops import LoopWriter, Writer
from fxstack_inductor.codegen.c.points import PointsWriter
from fxstack_inductor.codegen.c.ranges import ranges
from fxstack_inductor.codegen.c.reductions.columns import ColumnWriter
from fxstack_inductor.codegen.c.reductions.scan_rows import ScanWriter, row_loop
from fxstack_inductor.codegen.c.reductions.turned import TurnedWriter, turned
from fxstack_inductor.codegen.c.scatter import ScatterWriter
from fxstack_inductor.codegen.c.sharing import share
from fxstack_inductor.codegen.c.text import parameters
from fxstack_inductor.codegen.c.threads import definition, either, threaded, work_condition
from fxstack_inductor.codegen.c.tiles import TileWriter, crossing
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import product
from fxstack_inductor.ir.kernel import Check, Kernel, Load, Reduce

FEW_POINTS = 8
"""With fewer outer points than this, threads share the inner loop."""
MIN_TEAM_POINTS = 1 << 14
"""Inner loops of this length justify a thread team per outer point, if threads cannot share outer points."""


def strategy(kernel: Kernel) -> str:
    """Return the name of the loop structure.

    ``points``: no inner loops; ``tiles``: no inner loops, but some memory lies across the last loop;
    ``rows``: the inner loops run along memory; ``columns``: the inner loops run across memory; ``whole``: few
    outer points, and threads share the inner loops; ``scatter``: stores may collide, and the inner loops keep
    their order; ``checks``: nothing is written.
    """
    if kernel.only_checks:
        return "checks"
    if kernel.scatters:
        return "scatter"
    if not kernel.inner:
        return "tiles" if crossing(kernel) is not None else "points"
    reduces = [v for v in kernel.values if isinstance(v, Reduce)]
    if kernel.ordered:
        if _across(kernel):
            return "columns"
        return "rows" if row_loop(kernel) is None else "scans_of_rows"
    if not reduces:
        return "rows"
    scalar = any(r.op.startswith("arg") for r in reduces)
    if not scalar and _few_points(kernel) and _passes_shared(kernel):
        return "whole"
    if not scalar and _across(kernel):
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
    """Whether most inner-loop loads lie across memory; loads that are equal for all columns do not count."""
    if not kernel.outer:
        return False
    inner, outer = kernel.inner[-1].var, kernel.outer[-1].var
    varies = analyse(kernel).inner
    along = across = 0
    for value, in_rows in zip(kernel.values, varies, strict=True):
        if isinstance(value, Load) and in_rows:
            depends = outer in value.index.variables
            along += depends and value.index.coefficient(inner) == 1
            across += value.index.coefficient(outer) == 1
    return across > along


def function_text(kernel: Kernel, name: str, grain: int) -> str:
    """Return the C definition of ``kernel`` as function ``name``; ``c_source`` calls this for each kernel."""
    text = _function_text(kernel, name, grain)
    begin = "FUNCTION_BEGIN STRAIGHT" if _straight(kernel) else "FUNCTION_BEGIN"
    return f"{begin}\n{text}\nFUNCTION_END"


def _straight(kernel: Kernel) -> bool:
    """Whether no load in a vector loop depends on a condition: ``STRAIGHT`` of the prelude then vectorises more.

    Where the inner loops run along memory, values outside of them are scalars.
    """
    scalars = analyse(kernel).outer if strategy(kernel) in {"rows", "turned_rows", "whole"} else frozenset()
    return not any(
        isinstance(v, Check) or (isinstance(v, Load) and v.mask is not None)
        for k, v in enumerate(kernel.values)
        if k not in scalars
    )


def _function_text(kernel: Kernel, name: str, grain: int) -> str:
    """Return the C definition, with one version for threads and one for a single thread where both are needed."""
    chosen, condition = strategy(kernel), work_condition(kernel, grain)
    head = f"void {name}({', '.join(parameters(kernel))})"
    if chosen == "whole":
        alone = _written("rows", kernel, None).lines
        if condition is None:
            return definition(head, alone)
        out = _written(chosen, kernel, grain)
        return either(head, _all(condition, out), out.lines, alone)
    out = _written(chosen, kernel, grain)
    if out.shared and condition is not None:
        return threaded(head, _all(condition, out), out.first, out.lines)
    return definition(head, [*out.first, *out.lines])


def _all(condition: str, out: Writer) -> str:
    """Return the C condition for sharing loops: ``condition`` (enough work), and what the proof of ``share`` needs."""
    return " && ".join([condition, *sorted(out.conditions)])


def _written(chosen: str, kernel: Kernel, grain: int | None) -> Writer:
    """Return the code of ``kernel``, written by the method that strategy ``chosen`` names."""
    writer = WRITERS.get(chosen, FunctionWriter)(kernel, grain)
    getattr(writer, chosen)()
    nothing = _where_nothing_is_done(kernel)
    writer.out.lines[:0] = [*nothing, *writer.names.apart]
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
    "tiles": TileWriter,
    "scatter": ScatterWriter,
    "checks": ScatterWriter,
    "scans_of_rows": ScanWriter,
    "turned_rows": TurnedWriter,
}
"""Writers of the strategies that ``FunctionWriter`` does not have."""
