"""Which results eager's kernels leave undefined (None in Python), for the operators whose fake kernels make tensors of them.

A result that is no tensor is None in the graph, and nothing is planned for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

_ATEN = torch.ops.aten


def with_undefined(func: object, args: Sequence[Any], kwargs: Mapping[str, Any], result: object) -> Any:
    """``result`` of ``func`` on fake tensors, with None for what eager leaves undefined."""
    rule = _RULES.get(func)
    if rule is None or not isinstance(result, (tuple, list)):
        return result
    missing = rule(_named(func, args, kwargs))
    return tuple(None if k in missing else part for k, part in enumerate(result))


def _named(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names, those that were not given with their defaults."""
    declared = func._schema.arguments
    given = {argument.name: argument.default_value for argument in declared}
    given.update(zip((argument.name for argument in declared), args, strict=False))
    return {**given, **kwargs}


def _rnn_layer(_given: dict[str, Any]) -> tuple[int, ...]:
    """The workspace of oneDNN's layer is for a backward alone; whether there can be one, grad mode says."""
    return () if torch.is_grad_enabled() else (3,)


def _attention(given: dict[str, Any]) -> tuple[int, ...]:
    return () if given["need_weights"] else (1,)


def _masked(given: dict[str, Any]) -> tuple[int, ...]:
    """Gradients that nobody asked for."""
    return tuple(k for k, wanted in enumerate(given["output_mask"]) if not wanted)


_RULES: Mapping[Any, Callable[[dict[str, Any]], tuple[int, ...]]] = MappingProxyType(
    {
        _ATEN._native_multi_head_attention.default: _attention,
        _ATEN.mkldnn_rnn_layer.default: _rnn_layer,
        _ATEN.native_batch_norm_backward.default: _masked,
    }
)
