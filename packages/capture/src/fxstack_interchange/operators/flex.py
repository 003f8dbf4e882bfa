"""What ``flex_attention`` means where its node is written down and where it is taken apart."""

from __future__ import annotations

from typing import Any


def attention_strides(shape: tuple[Any, ...], like: tuple[Any, ...]) -> tuple[Any, ...]:
    """Strides for ``shape`` that order dimensions in memory as the strides ``like`` do, the last one innermost all the same.

    As torch gives them to the operator's result; of dimensions with equal strides, the later one is further inside.
    """
    last = len(shape) - 1
    order = sorted(range(last, -1, -1), key=like.__getitem__)
    strides = _filled(shape, order)
    if strides[last] != 1:
        order.remove(last)
        strides = _filled(shape, [last, *order])
    return strides


def _filled(shape: tuple[Any, ...], order: list[int]) -> tuple[Any, ...]:
    strides: list[Any] = [1] * len(shape)
    running: Any = 1
    for dim in order:
        strides[dim] = running
        running = running * shape[dim]
    return tuple(strides)
