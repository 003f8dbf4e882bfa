"""Choose the order in memory of tensors that only kernels read and that are reduced: the order of the operands.

A rule of lowering makes its intermediate tensors contiguous. If the operands are transposed, a kernel of reductions along these
would go through transposed copies to store such a tensor. The kernel of points that reads the tensor transposes it in tiles.
"""

# Limits: of a tensor with wider elements than its operands, copies of the operands are smaller; it keeps its order.

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fxstack_inductor.ir.expr import ONE, Expr
from fxstack_inductor.ir.nodes import Computed, Layout, Node, Pointwise, Read, Reduction
from fxstack_inductor.schedule.fusion.inlining import Usage
from fxstack_inductor.schedule.fusion.state import place_of


def like_operands(usage: Usage) -> Iterator[tuple[Computed, Layout]]:
    """Yield the tensors that no call reads and that are not returned, with their new layouts, if these differ."""
    chosen: dict[Node, Layout] = {}
    for node in usage.live:
        if not isinstance(node, Pointwise) or node in usage.required:
            continue
        full = {read.node: order for read in node.reads if (order := _order_of(read, node, chosen))}
        orders = set(full.values())
        if len(orders) != 1 or (order := orders.pop()) == _order(node.layout):
            continue
        narrow = node.dtype.itemsize <= min(operand.dtype.itemsize for operand in full)
        if narrow and _is_reduced(node, order[-1], usage):
            chosen[node] = _dense(node.layout, order)
            yield node, chosen[node]


def _order_of(read: Read, node: Pointwise, chosen: Mapping[Node, Layout]) -> tuple[int, ...]:
    """Return the dimensions of ``node`` in the order in which they lie in the memory of an operand; empty if one does not."""
    strides = chosen.get(read.node, read.node.layout).stride
    coords = [coord for coord in read.coords if isinstance(coord, Expr)]
    if len(coords) != len(read.coords):
        return ()
    place = place_of(coords, strides)
    variables = {dim: var for dim, e in enumerate(node.index) if node.shape[dim] != 1 and (var := e.as_var())}
    steps = {dim: place.coefficient(var) for dim, var in variables.items()}
    known = {dim: number for dim, step in steps.items() if step is not None and (number := step.as_int())}
    return tuple(sorted(known, key=lambda dim: -abs(known[dim]))) if known.keys() == steps.keys() else ()


def _is_reduced(node: Computed, dim: int, usage: Usage) -> bool:
    """Whether a reduction along the dimension ``dim`` reads ``node``."""
    reductions = (reader for reader in usage.readers[node] if isinstance(reader, Reduction))
    return any(
        isinstance(coord := read.coords[dim], Expr) and coord.as_var() in {e.as_var() for e in reader.reduced}
        for reader in reductions
        for read in reader.reads
        if read.node is node
    )


def _order(layout: Layout) -> tuple[int, ...]:
    """Return the dimensions of more than one element in the order of memory, the slowest first."""
    return tuple(dim for dim in layout.order if layout.shape[dim] != 1)


def _dense(layout: Layout, order: tuple[int, ...]) -> Layout:
    """Return ``layout`` without gaps and with its dimensions in this order."""
    strides, step = [ONE] * len(layout.shape), ONE
    for dim in reversed(order):
        strides[dim], step = step, step * layout.shape[dim]
    return Layout(layout.shape, tuple(strides), layout.dtype, layout.device)
