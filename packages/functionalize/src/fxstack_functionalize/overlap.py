"""In-place operators on tensors whose elements share memory (``x.expand(3, 4).add_(1)``).

Eager raises for most of them. Functionalisation would compute some value instead, so they are refused, and eager
gets to say what it says.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize.errors import UnsupportedGraphError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.fx import Node

IN_PLACE_FUNCTIONS = frozenset(
    {
        operator.iadd,
        operator.isub,
        operator.imul,
        operator.itruediv,
        operator.ifloordiv,
        operator.imod,
        operator.ipow,
        operator.iand,
        operator.ior,
        operator.ixor,
        operator.ilshift,
        operator.irshift,
        operator.setitem,
    }
)


def refuse_overlap(node: Node, args: Sequence[Any]) -> None:
    """Raise if ``node`` changes its first argument in place and that overlaps itself."""
    if not args or not isinstance(args[0], torch.Tensor) or not _changes_first(node):
        return
    target = args[0]
    if target.layout is torch.strided and _overlaps(target):
        raise UnsupportedGraphError(
            f"node {node.name!r} changes a tensor in place of which several elements share memory",
            why="eager has an error for this, and a functional graph would give a value",
            fix="clone the expanded tensor first",
        )


def _changes_first(node: Node) -> bool:
    if node.op == "call_function" and node.target in IN_PLACE_FUNCTIONS:
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def _overlaps(tensor: torch.Tensor) -> bool:
    return any(
        type(stride) is int and stride == 0 and not (type(size) is int and size <= 1)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
