"""The bytes and operations of a schedule's kernels, with the given values of symbolic sizes.

Each element of a buffer counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fxstack_inductor.cost.roofline import size_of
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import Expr, Var
from fxstack_inductor.ir.kernel import Compute, Kernel, Load, Reduce
from fxstack_inductor.ir.scalar_ops import EXPENSIVE, EXPENSIVE_OPERATIONS
from fxstack_inductor.tiling.tiles import extent


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes that one launch or call reads and writes, and its arithmetic operations."""

    read: int
    """Bytes."""
    written: int
    """Bytes."""
    operations: int


def kernel_traffic(kernel: Kernel, sizes: Mapping[str, int]) -> Traffic:
    """Return the traffic of one launch of a kernel of the loop IR."""
    facts = analyse(kernel)
    loops = {loop.var: size_of(loop.extent, sizes) for loop in (*kernel.outer, *kernel.inner)}
    itemsize = {ref.name: ref.dtype.itemsize for ref in kernel.buffers}
    room = {ref.name: size_of(ref.numel, sizes) for ref in kernel.buffers}
    read: dict[str, int] = {}
    for value in kernel.values:
        if isinstance(value, Load):
            touched = min(room[value.buffer], _points(value.index, loops, kernel))
            read[value.buffer] = max(read.get(value.buffer, 0), touched * itemsize[value.buffer])
    written: dict[str, int] = {}
    for store in kernel.stores:
        touched = min(room[store.buffer], _points(store.index, loops, kernel))
        written[store.buffer] = touched * itemsize[store.buffer]
    outer = size_of(extent(kernel.outer), sizes)
    points = outer * size_of(extent(kernel.inner), sizes)
    operations = sum(
        operations_of(value) * (points if facts.inner[k] or isinstance(value, Reduce) else outer)
        for k, value in enumerate(kernel.values)
    )
    return Traffic(sum(read.values()), sum(written.values()), operations)


def _points(index: Expr, loops: Mapping[Var, int], kernel: Kernel) -> int:
    """Return the largest number of elements that an address reaches; a computed address may reach one per point."""
    variables = index.variables
    if any(v.kind == "value" for v in variables):
        variables = frozenset(loops)
    count = 1
    for loop in (*kernel.outer, *kernel.inner):
        count *= loops[loop.var] if loop.var in variables else 1
    return count


def operations_of(value: object) -> int:
    """Return the cost of a value at one point, in additions."""
    if isinstance(value, Compute):
        return EXPENSIVE_OPERATIONS if value.op in EXPENSIVE else 1
    return int(isinstance(value, Reduce))
