"""Derivatives that ask whether a size that data decides is 0 or 1, and whose general case holds for these, too.

The derivative of ``cumsum`` hands a gradient of one element on as it is, that of a matrix product looks for the layout that
saves a copy. Such shortcuts are not taken where nobody knows the size.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from fxstack_functionalize import torch_compat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx.experimental.symbolic_shapes import ShapeEnv

DERIVATIVES = frozenset(
    {"AddmmBackward0", "BmmBackward0", "CumsumBackward0", "LogcumsumexpBackward0", "MmBackward0"}
)
"""The nodes of autograd of which this is known."""


@contextmanager
def either_way(shapes: ShapeEnv | None) -> Iterator[None]:
    """Answer what ``DERIVATIVES`` ask about sizes that data decides as if these were neither 0 nor 1."""
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
