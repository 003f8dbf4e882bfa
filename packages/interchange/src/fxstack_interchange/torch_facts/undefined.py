"""Results that eager's kernels leave undefined (None in Python) although the fake kernels return tensors.

The recorded graph has None for such a result, so no stage allocates memory for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

_ATEN = torch.ops.aten


def with_undefined(func: object, args: Sequence[Any], kwargs: Mapping[str, Any], result: object) -> Any:
    """Return ``result`` (of ``func`` on fake tensors) with None for results that eager leaves undefined."""
    rule = _RULES.get(func)
    if rule is None or not isinstance(result, (tuple, list)):
        return result
    missing = rule(_arguments_by_name(func, args, kwargs))
    return tuple(None if k in missing else part for k, part in enumerate(result))


def _arguments_by_name(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name. Missing arguments get their defaults."""
    declared = func._schema.arguments
    arguments = {argument.name: argument.default_value for argument in declared}
    arguments.update(zip((argument.name for argument in declared), args, strict=False))
    return {**arguments, **kwargs}


def _rnn_layer(_arguments: dict[str, Any]) -> tuple[int, ...]:
    """Return the position of the workspace, which oneDNN's layer computes only if grad mode is on."""
    return () if torch.is_grad_enabled() else (3,)


def _attention(arguments: dict[str, Any]) -> tuple[int, ...]:
    return () if arguments["need_weights"] else (1,)


def _masked(arguments: dict[str, Any]) -> tuple[int, ...]:
    """Return the positions of the gradients that ``output_mask`` excludes."""
    return tuple(k for k, is_needed in enumerate(arguments["output_mask"]) if not is_needed)


_RULES: Mapping[Any, Callable[[dict[str, Any]], tuple[int, ...]]] = MappingProxyType(
    {
        _ATEN._native_multi_head_attention.default: _attention,
        _ATEN.mkldnn_rnn_layer.default: _rnn_layer,
        _ATEN.native_batch_norm_backward.default: _masked,
    }
)
