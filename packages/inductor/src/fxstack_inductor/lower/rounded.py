"""Values of half precision that are rounded after their operator, as eager rounds them.

Kernels keep the values of a chain of operators in float32. The last digits may then differ from eager's. An
operator whose result jumps (a comparison, ``floor``, a conversion to integers) makes this difference visible.
Therefore the elementwise operators before such an operator round their results. With
``InductorOptions.eager_rounding`` all operators round.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import Graph
from torch.fx import Node as FxNode

from fxstack_inductor.torch_compat import OpOverload

_HALF = frozenset({torch.bfloat16, torch.float16})
_DISCONTINUOUS = frozenset(
    {
        *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not"),
        *("floor", "ceil", "trunc", "round", "frac", "sign", "sgn", "signbit", "heaviside", "nextafter"),
        *("isnan", "isinf", "isfinite", "fmod", "remainder", "floor_divide", "argmax", "argmin"),
        *("threshold", "bucketize", "searchsorted", "nonzero", "sort", "topk", "unique", "any", "all"),
    }
)
"""Operators by name. ``max`` and ``min`` along a dimension return positions, divisions may round to integers."""
_CONVERSIONS = frozenset({"_to_copy", "convert_element_type"})
_MOVING = frozenset(
    {
        *("_unsafe_view", "_reshape_copy", "clone", "cat", "stack", "flip", "roll", "repeat"),
        *("gather", "index", "index_select", "take", "select_scatter", "slice_scatter", "amax", "amin"),
        "constant_pad_nd",
    }
)
"""Operators, none of them elementwise, whose results are elements of their operands."""


def rounded_nodes(graph: Graph) -> frozenset[str]:
    """Return the names of half-precision nodes that must round, as ``Context.rounded``.

    Their results reach a discontinuous operator through elementwise nodes.
    """
    rounded: set[FxNode] = set()
    for node in reversed(graph.nodes):
        if _is_discontinuous(node) or (node in rounded and _keeps_digits(node)):
            rounded.update(node.all_input_nodes)
    return frozenset(node.name for node in rounded if any(value.dtype in _HALF for value in _tensors(node)))


def _is_discontinuous(node: FxNode) -> bool:
    """Whether a small error of an operand can change the node's result by a whole step."""
    name = _name(node)
    if name in _CONVERSIONS:
        return any(not value.dtype.is_floating_point for value in _tensors(node))
    if name in ("max", "min"):
        return isinstance(node.meta.get("val"), (tuple, list))
    return name in _DISCONTINUOUS or (name == "div" and node.kwargs.get("rounding_mode") is not None)


def _keeps_digits(node: FxNode) -> bool:
    """Whether the node computes each element from at most one element of each operand, or takes an element."""
    if not isinstance(node.target, OpOverload):
        return False
    viewing = any(argument.alias_info is not None for argument in node.target._schema.arguments)
    return viewing or torch.Tag.pointwise in node.target.tags or _name(node) in _CONVERSIONS | _MOVING


def _name(node: FxNode) -> str:
    """Return an operator's name without namespace and overload; empty for other functions."""
    target = node.target
    return target._schema.name.rpartition("::")[2] if isinstance(target, OpOverload) else ""


def _tensors(node: FxNode) -> Iterator[torch.Tensor]:
    """Return the fake tensors that the node returns."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return (part for part in values if isinstance(part, torch.Tensor))
