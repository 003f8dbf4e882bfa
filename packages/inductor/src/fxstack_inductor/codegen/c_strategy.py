"""Which loop structure a kernel gets, and its C function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_inductor.codegen.analysis import analyse
from fxstack_inductor.codegen.c_columns import ColumnWriter
from fxstack_inductor.codegen.c_function import FunctionWriter
from fxstack_inductor.codegen.c_points import PointsWriter
from fxstack_inductor.codegen.c_scatter import ScatterWriter
from fxstack_inductor.codegen.c_text import parameters
from fxstack_inductor.codegen.c_threads import definition, either, threaded, work_condition
from fxstack_inductor.codegen.c_tiles import TileWriter, crossing
from fxstack_inductor.ir.expr import product
from fxstack_inductor.ir.kernel import Check, Kernel, Load, Reduce

if TYPE_CHECKING:
    from fxstack_inductor.codegen.c_loops import LoopWriter, Writer

FEW_POINTS = 8
"""With fewer outer points than this, the inner loop is what threads share."""


def strategy(kernel: Kernel) -> str:
    """How the loops are arranged.

    ``points``: no inner loops; ``tiles``: none, and some memory is walked across the last loop;
    ``rows``: the inner loops run along memory; ``columns``: across it; ``whole``:
    there are few outer points, and threads share the inner loops; ``scatter``: stores may meet, and the inner
    loops keep their order.
    """
    if kernel.scatters:
        return "scatter"
    if not kernel.inner:
        return "tiles" if crossing(kernel) is not None else "points"
    reduces = [v for v in kernel.values if isinstance(v, Reduce)]
    if kernel.ordered:
        return "columns" if _across(kernel) else "rows"
    if not reduces:
        return "rows"
    points = product(loop.extent for loop in kernel.outer).as_int()
    scalar = any(r.op.startswith("arg") for r in reduces)
    if points is not None and points < FEW_POINTS and not scalar:
        return "whole"
    return "columns" if not scalar and _across(kernel) else "rows"


def _across(kernel: Kernel) -> bool:
    """Whether most of what the inner loops read lies across memory; what all columns share has no say."""
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
    """The C definition of ``kernel``, called ``name``."""
    text = _function_text(kernel, name, grain)
    begin = "FUNCTION_BEGIN STRAIGHT" if _straight(kernel) else "FUNCTION_BEGIN"
    return f"{begin}\n{text}\nFUNCTION_END"


def _straight(kernel: Kernel) -> bool:
    """Whether nothing that is read depends on a condition."""
    return not any(
        isinstance(v, Check) or (isinstance(v, Load) and v.mask is not None) for v in kernel.values
    )


def _function_text(kernel: Kernel, name: str, grain: int) -> str:
    chosen, condition = strategy(kernel), work_condition(kernel, grain)
    head = f"void {name}({', '.join(parameters(kernel))})"
    if chosen == "whole":
        alone = _written("rows", kernel, None).lines
        if condition is None:
            return definition(head, alone)
        return either(head, condition, _written(chosen, kernel, grain).lines, alone)
    out = _written(chosen, kernel, grain)
    if out.shared and condition is not None:
        return threaded(head, condition, out.first, out.lines)
    return definition(head, [*out.first, *out.lines])


def _written(chosen: str, kernel: Kernel, grain: int | None) -> Writer:
    writer = WRITERS.get(chosen, FunctionWriter)(kernel, grain)
    getattr(writer, chosen)()
    writer.out.lines[:0] = writer.names.apart
    return writer.out


WRITERS: dict[str, type[LoopWriter]] = {
    "columns": ColumnWriter,
    "points": PointsWriter,
    "tiles": TileWriter,
    "scatter": ScatterWriter,
}
"""Writers of strategies that are not among ``FunctionWriter``'s."""
