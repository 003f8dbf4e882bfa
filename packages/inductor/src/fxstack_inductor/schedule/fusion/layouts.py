"""Choose the order in memory of tensors that only kernels read and that are reduced: the order of the operands.

A rule of lowering makes its intermediate tensors contiguous. If the operands are transposed, a kernel of reductions along these
would go through transposed copies to store such a tensor. The kernel of points that reads the tensor transposes it in tiles.
Results of reductions across transposed operands are stored along the columns, as their readers go along the operands.
"""

# Limits: of a tensor with wider elements than its operands, copies of the operands are smaller; it keeps its order.

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from fxstack_inductor.ir.expr import ONE, Expr
from fxstack_inductor.ir.nodes import Computed, Layout, Node, Pointwise, Read, Reduction
from fxstack_inductor.schedule.fusion.inlining import Usage
from fxstack_inductor.schedule.fusion.state import place_of


def like_operands(usage: Usage) -> Iterator[tuple[Computed, Layout]]:
    """Yield the tensors that no call reads and that are not returned, with their new layouts, if these differ."""
    chosen: dict[Node, Layout] = {}
    computed: dict[Node, Layout] = {}
    across: set[Node] = set()
    for node in usage.live:
        if node in usage.required or not isinstance(node, (Pointwise, Reduction)):
            continue
        order = _other_order(node, computed)
        if order is not None:
            computed[node] = _dense(node.layout, order)
            if _comes_from_columns(node, order[-1], computed, across):
                across.add(node)
                yield node, computed[node]
                continue
        if any(read.node in chosen or read.node in computed for read in node.reads):
            order = _other_order(node, chosen)
        if order is None or not isinstance(node, Pointwise):
            continue
        narrow = all(node.dtype.itemsize <= read.node.dtype.itemsize for read, _ in _full(node, chosen))
        if narrow and _is_reduced(node, order[-1], usage):
            chosen[node] = _dense(node.layout, order)
            yield node, chosen[node]


def _other_order(node: Computed, layouts: Mapping[Node, Layout]) -> tuple[int, ...] | None:
    """Return the order in memory of the operands, if all have one and ``node`` has another; ``layouts``: new ones."""
    orders = {order for _, order in _full(node, layouts)}
    return orders.pop() if len(orders) == 1 and orders != {_order(node.layout)} else None


def _full(node: Computed, layouts: Mapping[Node, Layout]) -> Iterator[tuple[Read, tuple[int, ...]]]:
    """Yield the reads that change along all dimensions of ``node``, and the order of these in the memory of the operand."""
    for read in node.reads:
        steps = _steps(read, node.index, layouts)
        known = {dim: abs(step) for dim, step in steps.items() if step and node.shape[dim] != 1}
        if known and len(known) == len(_order(node.layout)):
            yield read, tuple(sorted(known, key=lambda dim: -known[dim]))


def _comes_from_columns(
    node: Computed, last: int, layouts: Mapping[Node, Layout], across: Collection[Node]
) -> bool:
    """Whether ``node`` is reduced across memory that is contiguous along dimension ``last``, or computed from such tensors."""
    reads = [read for read, _ in _full(node, layouts)]
    if not isinstance(node, Reduction):
        return all(read.node in across for read in reads)
    return not node.template and all(
        _steps(read, node.index, layouts).get(last) in {1, -1}
        and 1 not in _steps(read, node.reduced, layouts).values()
        for read in reads
    )


def _steps(read: Read, index: Sequence[Expr], layouts: Mapping[Node, Layout]) -> dict[int, int | None]:
    """Return how far in memory the read moves with each variable of ``index``, by position; None if unknown."""
    coords = [coord for coord in read.coords if isinstance(coord, Expr)]
    if len(coords) != len(read.coords):
        return {}
    place = place_of(coords, layouts.get(read.node, read.node.layout).stride)
    variables = {dim: var for dim, e in enumerate(index) if (var := e.as_var())}
    steps = {dim: place.coefficient(var) for dim, var in variables.items()}
    return {dim: None if step is None else step.as_int() for dim, step in steps.items()}


def _is_reduced(node: Computed, dim: int, usage: Usage) -> bool:
    """Whether a reduction along the dimension ``dim`` reads ``node``, or reductions alone, which go along memory or across."""
    reductions = [reader for reader in usage.readers[node] if isinstance(reader, Reduction)]
    return len(reductions) == len(usage.readers[node]) or any(
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
