"""The bytes and operations of ATen's calls, with the given values of symbolic sizes.

This module imports torch's operation counts, which takes 100 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from fxstack_inductor.cost.roofline import size_of
from fxstack_inductor.cost.traffic import Traffic
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Extern, ExternCall, Node


def call_traffic(step: ExternCall, sizes: Mapping[str, int]) -> Traffic:
    """Return the traffic of an ATen call: one access of each tensor, and operations by torch's formula (0
    without a formula).
    """
    read = sum(_bytes(node, sizes) for node in dict.fromkeys(step.reads))
    return Traffic(read, sum(_bytes(node, sizes) for node in step.outputs), _flops(step, sizes))


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
