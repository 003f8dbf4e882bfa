"""The bytes and operations of a schedule's kernels and calls, with the given values of symbolic sizes.

Each element of a buffer counts once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from fxstack_inductor.cost.roofline import size_of
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import Expr, Var
from fxstack_inductor.ir.kernel import Compute, Kernel, Load, Reduce
from fxstack_inductor.ir.nodes import Extern, ExternCall, Node
from fxstack_inductor.ir.scalar_ops import EXPENSIVE
from fxstack_inductor.tiling.tiles import extent

EXPENSIVE_OPERATIONS = 20
"""The cost of a transcendental function, in additions."""


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
        _operations(value) * (points if facts.inner[k] or isinstance(value, Reduce) else outer)
        for k, value in enumerate(kernel.values)
    )
    return Traffic(sum(read.values()), sum(written.values()), operations)


def call_traffic(step: ExternCall, sizes: Mapping[str, int]) -> Traffic:
    """Return the traffic of an ATen call: one access of each tensor, and operations by torch's formula (0
    without a formula).
    """
    read = sum(_bytes(node, sizes) for node in dict.fromkeys(step.reads))
    return Traffic(read, sum(_bytes(node, sizes) for node in step.outputs), _flops(step, sizes))


def _points(index: Expr, loops: Mapping[Var, int], kernel: Kernel) -> int:
    """Return the largest number of elements that an address reaches; a computed address may reach one per point."""
    variables = index.variables
    if any(v.kind == "value" for v in variables):
        variables = frozenset(loops)
    count = 1
    for loop in (*kernel.outer, *kernel.inner):
        count *= loops[loop.var] if loop.var in variables else 1
    return count


def _operations(value: object) -> int:
    """Return the cost of a value at one point, in additions."""
    if isinstance(value, Compute):
        return EXPENSIVE_OPERATIONS if value.op in EXPENSIVE else 1
    return int(isinstance(value, Reduce))


def _flops(step: ExternCall, sizes: Mapping[str, int]) -> int:
    """Return the operations of an ATen call by torch's formula, or 0 if torch has no formula."""
    packet = getattr(step.target, "overloadpacket", None)
    formula = flop_registry.get(packet)
    if formula is None:
        return 0
    outputs = {output.path: _meta(output, sizes) for output in step.outputs}
    args = _concrete(step.args, sizes)
    kwargs = _concrete(step.kwargs, sizes)
    if () in outputs:
        return int(formula(*args, **kwargs, out_val=outputs[()]))
    # Results that nothing reads are missing: the gradient of a batch of images, for example.
    count = max((path[0] for path in outputs), default=-1) + 1
    return int(formula(*args, **kwargs, out_val=tuple(outputs.get((k,)) for k in range(count))))


def _concrete(value: object, sizes: Mapping[str, int]) -> Any:
    """Return an argument with tensors and sizes replaced by meta tensors and numbers, for torch's formulas."""
    if isinstance(value, Node):
        return _meta(value, sizes)
    if isinstance(value, Expr):
        return size_of(value, sizes)
    if isinstance(value, (tuple, list)):
        return type(value)(_concrete(v, sizes) for v in value)
    if isinstance(value, dict):
        return {name: _concrete(v, sizes) for name, v in value.items()}
    return value


def _meta(node: Node, sizes: Mapping[str, int]) -> torch.Tensor:
    """Return a meta tensor of a node's shape and dtype."""
    shape = [size_of(size, sizes) for size in node.shape]
    return torch.empty(shape, dtype=node.dtype, device="meta")


def _bytes(node: Node | Extern, sizes: Mapping[str, int]) -> int:
    """Return the bytes of a tensor."""
    elements: int = size_of(node.layout.numel, sizes)
    return elements * int(node.dtype.itemsize)
