"""Trace recurrent layers in training as operators for each time step, not as oneDNN's layer.

oneDNN's layer keeps the workspace for its backward only in grad mode, but compiled forwards run without it.
Under autocast oneDNN's layer takes and returns autocast's dtype and computes in float32 inside. So do the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fxstack_functionalize import torch_compat

_LAYERS = frozenset({torch.lstm, torch.ops.aten.lstm.input, torch.ops.aten.lstm.data})


def in_steps(call: Callable[..., Any], target: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return ``call(args, kwargs)``, which calls ``target``. Turn oneDNN off if ``target`` is a layer in grad mode."""
    if target not in _LAYERS or not torch.is_grad_enabled():
        return call(args, kwargs)
    low = _low_precision(args)
    if low is None:
        with _without_mkldnn():
            return call(args, kwargs)
    x, hidden, weights, *options = args
    rounded = [[t.to(low).float() for t in tensors] for tensors in ([x], hidden, weights)]
    with _without_mkldnn(), torch_compat.DisableAutocast():
        results = call((rounded[0][0], *rounded[1:], *options), kwargs)
    return tuple(result.to(low) for result in results)


def _low_precision(args: Sequence[Any]) -> torch.dtype | None:
    """Return autocast's dtype if eager computes the layer by one operator of oneDNN, for which autocast has a rule.

    Return None for other layers: autocast has rules only for the operators of their steps.
    """
    x, hidden = args[:2]
    is_one_operator = (
        torch.is_autocast_enabled("cpu")
        and torch_compat.get_mkldnn_enabled()
        and not isinstance(hidden, torch.Tensor)  # the batch sizes of packed sequences
        and x.device.type == "cpu"
        and (
            x.dtype is torch.float32
            or (x.dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
        )
        and hidden[0].shape[2] == hidden[1].shape[2]
    )
    return torch.get_autocast_dtype("cpu") if is_one_operator else None


@contextmanager
def _without_mkldnn() -> Iterator[None]:
    """Turn oneDNN off in a ``with`` block, so that torch computes a layer by the operators of its steps."""
    enabled = torch_compat.get_mkldnn_enabled()
    torch_compat.set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch_compat.set_mkldnn_enabled(enabled)


class _StepsMode(TorchFunctionMode):
    """Applies ``in_steps`` to the recurrent layers that a module calls."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return in_steps(lambda args, kwargs: func(*args, **kwargs), func, args, kwargs or {})


def steps_in_module(module: torch.nn.Module) -> AbstractContextManager[Any]:
    """Return the context for a call of ``module``: ``_StepsMode`` if the module has an LSTM, else no mode.

    No mode is entered without need, because a mode makes torch take other code paths.
    """
    recurrent = any(isinstance(submodule, torch.nn.LSTM) for submodule in module.modules())
    return _StepsMode() if recurrent else nullcontext()
