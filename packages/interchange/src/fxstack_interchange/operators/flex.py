"""The arguments and the result strides of ``flex_attention``, for capture and for ``dense_attention``."""

from __future__ import annotations

from typing import Any

POSITIONS = 4
"""The number of position arguments: batch, head, query and key, in this order."""


def attention_strides(shape: tuple[Any, ...], like: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return strides for ``shape`` with the dimension order of the strides ``like``.

    The last dimension is always the innermost. torch gives these strides to the operator's result. Of two
    dimensions with equal strides, the later dimension is further inside.
    """
    last = len(shape) - 1
    order = sorted(range(last, -1, -1), key=like.__getitem__)
    strides = _filled(shape, order)
    if strides[last] != 1:
        order.remove(last)
        strides = _filled(shape, [last, *order])
    return strides


def _filled(shape: tuple[Any, ...], order: list[int]) -> tuple[Any, ...]:
    """Return the strides of a dense tensor. ``order``: its dimensions from innermost to outermost."""
    strides: list[Any] = [1] * len(shape)
    running: Any = 1
    for dim in order:
        strides[dim] = running
        running = running * shape[dim]
    return tuple(strides)
