"""Calls of leaf functions (``torch.compiler.leaf_function``) that a functional graph can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fxstack_functionalize.errors import UnsupportedGraphError

LEAF_FUNCTION = getattr(torch.ops.higher_order, "invoke_leaf_function", None)
"""The operator; None in a torch without it. Its arguments: the function, its fake implementation, the structure of
its arguments, the positions of arguments that it writes to, and the flat arguments."""
_WRITTEN = 3


def demand_compilable_leaf(args: Sequence[Any]) -> None:
    """Check the arguments of a call of a leaf function.

    Raises:
        UnsupportedGraphError: if the function writes to arguments, or if its results may require a gradient.
    """
    # torch's operator keeps the history of the last call alone, so the backward of two calls would be wrong.
    trains = torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args)
    if not trains and not args[_WRITTEN]:
        return
    what = (
        "trains through a leaf function" if trains else "calls a leaf function that writes to its arguments"
    )
    raise UnsupportedGraphError(
        f"the graph {what}",
        why="a leaf function runs in plain Python, and its gradients and writes belong to each call",
        fix="make it a custom operator (torch.library.custom_op), or move it out of the compiled function",
    )
