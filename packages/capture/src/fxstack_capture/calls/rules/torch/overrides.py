"""Regions in which ``__torch_function__`` is disabled, and the default ``__torch_function__`` of tensors."""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.torch_compat import DeviceContext
from fxstack_capture.torch_side.subclasses.overrides import POP, PUSH
from fxstack_capture.torch_side.subclasses.suspended_modes import Level
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()

_LEVELS = {
    torch_compat.DisableTorchFunctionSubclass: Level.CLASSES_OFF,
    torch_compat.DisableTorchFunction: Level.ALL_OFF,
}


def _region(kind: Any, level: Level) -> None:
    """Register the rules of a context manager of torch.

    The object is torch's own object. Entering it changes the state of the trace alone.
    """

    def enter(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        trace.torch.overrides.enter(args[0], level)

    def leave(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        trace.torch.overrides.leave(args[0])

    RULES.plain(kind)
    RULES.add(kind.__enter__, enter)
    RULES.add(kind.__exit__, leave)


for _kind, _level in _LEVELS.items():
    _region(_kind, _level)


@RULES.rule(torch.device.__enter__)
def _device_enter(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Push the device's mode on the trace's stack.

    Torch's C code would push a mode that the trace does not know.
    """
    (device,) = args
    mode = trace.calls.call(DeviceContext, (device,), kwargs)
    trace.calls.call(PUSH, (mode,), {})
    return device


@RULES.rule(torch.device.__exit__)
def _device_exit(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    trace.calls.call(POP, (), {})


@RULES.rule(torch.Tensor.__torch_function__.__func__)
def _default(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return trace.torch.overrides.default(*args, **kwargs)
