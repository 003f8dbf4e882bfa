"""Derivatives that test whether a data-dependent size is 0 or 1, but whose general case is always correct.

The derivative of ``cumsum`` returns a gradient of one element unchanged; that of a matrix product looks for
the layout that saves a copy. A trace does not take such shortcuts if the size is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from fxstack_functionalize import torch_compat

DERIVATIVES = frozenset(
    {"AddmmBackward0", "BmmBackward0", "CumsumBackward0", "LogcumsumexpBackward0", "MmBackward0"}
)
"""The autograd nodes whose general case is correct for sizes 0 and 1."""


@contextmanager
def either_way(shapes: ShapeEnv | None) -> Iterator[None]:
    """While ``DERIVATIVES`` run, treat data-dependent sizes as neither 0 nor 1."""
    if shapes is None:
        yield
        return
    evaluate: Any = shapes.evaluate_sym_node

    def answer(node: object, size_oblivious: bool = False, *rest: object, **named: object) -> Any:
        try:
            return evaluate(node, size_oblivious, *rest, **named)
        except GuardOnDataDependentSymNode:
            running = torch_compat.current_autograd_node()
            if running is None or running.name().rpartition("::")[2] not in DERIVATIVES:
                raise
            return evaluate(node, True, *rest, **named)

    shapes.evaluate_sym_node = answer
    try:
        yield
    finally:
        del shapes.evaluate_sym_node
