"""Copy what lies across both the columns and the rows of a reduction across memory: it is contiguous along another outer loop.

Read in place, such a tensor takes a cache line for each element. Here the lines of a block of points of that loop are read once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fxstack_inductor.codegen.c.loops import PIECE
from fxstack_inductor.codegen.c.ops import STORAGE
from fxstack_inductor.codegen.c.ranges import for_head
from fxstack_inductor.codegen.c.text import STACK, Names
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import ZERO, Var, product
from fxstack_inductor.ir.kernel import Kernel, Load, Loop, operands

# Limits: what takes more of the stack than this, because the reduction has many rows, is read in place.

BLOCK = 16
"""Points of the other loop that are copied at once: a cache line of four-byte elements."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """The loads to copy, by position: they are contiguous along the outer loop ``along``."""

    kernel: Kernel
    along: Loop
    column: Loop
    loads: dict[int, Load]

    def enter(self, names: Names) -> Iterator[str]:
        """Yield C that copies the elements of ``crossed`` points from ``cross`` on, of the columns of the tile."""
        varies = analyse(self.kernel).inner
        for k, load in self.loads.items():
            inner = self.kernel.inner if varies[k] else ()
            rows, step = product(loop.extent for loop in inner), load.index.coefficient(self.column.var)
            assert step is not None
            kind, word = STORAGE[names.dtypes[load.buffer]], f"uint{8 * names.dtypes[load.buffer].itemsize}_t"
            yield f"{kind} turned{k}[{c_index(rows)}][{BLOCK}][{PIECE}] __attribute__((aligned(64)));"
            yield from (for_head(loop.var.name, "0", c_index(loop.extent)) for loop in inner)
            start = c_index(load.index.subs({self.along.var: ZERO, self.column.var: ZERO}))
            source = f"{names.buffers[load.buffer]} + {start} + cross + tile * ({c_index(step)})"
            target, sizes = f"turned{k}[{row_number(inner)}]", "crossed, width"
            yield f"transpose_{word}((const {word}*)({source}), {c_index(step)}, ({word}*){target}, {PIECE}, {sizes});"
            names.staged[k] = f"{target}[i]"


def row_number(inner: Sequence[Loop]) -> str:
    """Return, as C, the number of a point of the loops ``inner``."""
    number = "0"
    for loop in inner:
        number = f"({number}) * {c_index(loop.extent)} + {loop.var.name}" if number != "0" else loop.var.name
    return number


def crossing(kernel: Kernel) -> Crossing | None:
    """Return the loads of a kernel across memory that are worth copies; None without any."""
    *others, column = kernel.outer
    rows = product(loop.extent for loop in kernel.inner).as_int()
    if rows is None or not others or (column.extent.as_int() or BLOCK) < BLOCK:
        return None
    loads = {
        k: v
        for k, v in enumerate(kernel.values)
        if isinstance(v, Load) and v.mask is None and not operands(v) and v.buffer not in kernel.written
        if _across(v, column.var) and all(v.index.coefficient(loop.var) != 1 for loop in kernel.inner)
    }
    votes = Counter(loop.var for v in loads.values() for loop in others if v.index.coefficient(loop.var) == 1)
    if not votes:
        return None
    chosen = votes.most_common(1)[0][0]
    loads = {k: v for k, v in loads.items() if v.index.coefficient(chosen) == 1}
    dtypes = {ref.name: ref.dtype for ref in kernel.buffers}
    each = sum(dtypes[v.buffer].itemsize for v in loads.values())
    (along,) = (loop for loop in others if loop.var == chosen)
    return Crossing(kernel, along, column, loads) if rows * each * BLOCK * PIECE <= STACK else None


def _across(load: Load, var: Var) -> bool:
    """Whether ``load`` jumps, by equal steps, from point to point of the loop over ``var``."""
    step = load.index.coefficient(var)
    return step is not None and step.as_int() not in {0, 1}
