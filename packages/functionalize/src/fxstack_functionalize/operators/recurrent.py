"""Trace recurrent layers in training step by step, not as oneDNN's layer.

oneDNN's layer keeps the workspace for its backward only in grad mode, but compiled forwards run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fxstack_functionalize import torch_compat

_LAYERS = frozenset({torch.lstm, torch.ops.aten.lstm.input, torch.ops.aten.lstm.data})


@contextmanager
def steps_of(target: object) -> Iterator[None]:
    """Disable oneDNN around a call of ``target`` if it is a recurrent layer that may need a backward."""
    if target not in _LAYERS or not torch.is_grad_enabled():
        yield
        return
    enabled = torch_compat.get_mkldnn_enabled()
    torch_compat.set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch_compat.set_mkldnn_enabled(enabled)


class _StepsMode(TorchFunctionMode):
    """Does the same for recurrent layers that a module calls."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        with steps_of(func):
            return func(*args, **(kwargs or {}))


def steps_in(module: torch.nn.Module) -> AbstractContextManager[Any]:
    """Return the context for a call of ``module``: a mode only for LSTMs, as a mode changes other paths."""
    recurrent = any(isinstance(part, torch.nn.LSTM) for part in module.modules())
    return _StepsMode() if recurrent else nullcontext()
