"""Save values in a smaller dtype that holds them exactly, and convert them back in the backward.

A floating-point mask of ones and zeros fits into ``bool``. Positions in a plane (of max pooling) or along a
dimension fit into an integer dtype that is chosen by the size of the plane or dimension. Nothing is rounded:
the converted value is equal bit for bit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.fx import Node

from fxstack_partition.joint.ops import base_name

_INTEGERS = (torch.int8, torch.int16, torch.int32)


def _zero_or_one(_node: Node, _index: int) -> torch.dtype:
    """Return ``torch.bool``, for an operator whose result is zero or one."""
    return torch.bool


def _positions(result: int, size: Callable[[Node], int | None]) -> Callable[..., Any]:
    """Return a rule for operators whose result number ``result`` holds positions from 0 to ``size(node)`` - 1."""

    def dtype(node: Node, index: int) -> torch.dtype | None:
        count = size(node) if index == result else None
        return None if count is None else _smallest_dtype(count)

    return dtype


def _smallest_dtype(count: int) -> torch.dtype | None:
    """Return the smallest dtype of int8 to int32 that holds the positions 0 to ``count - 1``; None if none does."""
    return next((d for d in _INTEGERS if count - 1 <= torch.iinfo(d).max), None)


def _plane_size(dimensions: int) -> Callable[[Node], int | None]:
    """Return a function from a node to the number of positions in the last dimensions of its first argument."""
    return lambda node: _static(_shape(node)[-dimensions:])


def _dim_size(node: Node) -> int | None:
    """Return the size of the dimension that the operator's argument ``dim`` names; None if it is not static."""
    schema = getattr(node.target, "_schema", None)
    arguments = list(schema.arguments) if schema is not None else []
    for index, argument in enumerate(arguments):
        if argument.name == "dim":
            keyword = node.kwargs.get("dim", argument.default_value)
            dim = node.args[index] if index < len(node.args) else keyword
            shape = _shape(node)
            if isinstance(dim, int) and -len(shape) <= dim < len(shape):
                return _static((shape[dim],))
    return None


def _shape(node: Node) -> tuple[Any, ...]:
    value = node.args[0].meta.get("val") if isinstance(node.args[0], Node) else None
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _static(sizes: tuple[Any, ...]) -> int | None:
    """Return the product of ``sizes``; None if a size is symbolic, or ``sizes`` is empty."""
    return prod(sizes) if sizes and all(isinstance(size, int) for size in sizes) else None


_ONLY_RESULT = 0
"""The index of the result of an operator with one result."""

RULES: dict[str, Callable[[Node, int], torch.dtype | None]] = {
    "bernoulli": _zero_or_one,
    "max_pool2d_with_indices": _positions(1, _plane_size(2)),
    "max_pool3d_with_indices": _positions(1, _plane_size(3)),
    "adaptive_max_pool2d": _positions(1, _plane_size(2)),
    "adaptive_max_pool3d": _positions(1, _plane_size(3)),
    "sort": _positions(1, _dim_size),
    "topk": _positions(1, _dim_size),
    "max": _positions(1, _dim_size),
    "min": _positions(1, _dim_size),
    "argmax": _positions(_ONLY_RESULT, _dim_size),
    "argmin": _positions(_ONLY_RESULT, _dim_size),
}
"""By operator name: a function of a node and the index of a result. It returns the smaller dtype, or None."""


def narrow_dtype(node: Node) -> torch.dtype | None:
    """Return a smaller dtype in which the value of ``node`` can be saved without loss, or None."""
    base, index = node, _ONLY_RESULT
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        base, index = node.args[0], node.args[1]
    rule = RULES.get(base_name(base.target)) if base.op == "call_function" else None
    value = node.meta.get("val")
    if rule is None or not isinstance(value, torch.Tensor) or not _dense(value):
        return None
    dtype = rule(base, index) if isinstance(index, int) else None
    return dtype if dtype is not None and dtype.itemsize < value.dtype.itemsize else None


def _dense(value: torch.Tensor) -> bool:
    """Whether a value is contiguous in some dimension order.

    A conversion to another dtype and back then keeps its strides.
    """
    if value.layout is not torch.strided:
        return False
    expected: Any = 1
    if not all(isinstance(n, int) for n in (*value.shape, *value.stride())):
        pairs = list(zip(value.shape, value.stride(), strict=True))[::-1]
    else:
        pairs = sorted(zip(value.shape, value.stride(), strict=True), key=lambda p: (p[1], p[0]))
        pairs = [(size, step) for size, step in pairs if size != 1]
    for size, step in pairs:
        if _expression(step) != _expression(expected):
            return False
        expected = expected * size
    return True


def _expression(value: object) -> Any:
    return value.node.expr if isinstance(value, torch.SymInt) else value
