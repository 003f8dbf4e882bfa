"""Results that eager's kernels leave undefined (None in Python) although the fake kernels return tensors.

In the graph such a result is None, so no stage allocates memory for it.
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
    missing = rule(_named(func, args, kwargs))
    return tuple(None if k in missing else part for k, part in enumerate(result))


def _named(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name. Missing arguments get their defaults."""
    declared = func._schema.arguments
    given = {argument.name: argument.default_value for argument in declared}
    given.update(zip((argument.name for argument in declared), args, strict=False))
    return {**given, **kwargs}


def _rnn_layer(_given: dict[str, Any]) -> tuple[int, ...]:
    """Return the position of the workspace, which oneDNN's layer computes only if grad mode is on."""
    return () if torch.is_grad_enabled() else (3,)


def _attention(given: dict[str, Any]) -> tuple[int, ...]:
    return () if given["need_weights"] else (1,)


def _masked(given: dict[str, Any]) -> tuple[int, ...]:
    """Return the positions of the gradients that ``output_mask`` excludes."""
    return tuple(k for k, wanted in enumerate(given["output_mask"]) if not wanted)


_RULES: Mapping[Any, Callable[[dict[str, Any]], tuple[int, ...]]] = MappingProxyType(
    {
        _ATEN._native_multi_head_attention.default: _attention,
        _ATEN.mkldnn_rnn_layer.default: _rnn_layer,
        _ATEN.native_batch_norm_backward.default: _masked,
    }
)
