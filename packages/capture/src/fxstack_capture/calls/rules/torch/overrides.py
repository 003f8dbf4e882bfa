"""Regions in which ``__torch_function__`` is disabled, and the default ``__torch_function__`` of tensors."""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.calls.rules import RULES
from fxstack_capture.torch_compat import DeviceContext
from fxstack_capture.torch_side.subclasses.overrides import POP, PUSH
from fxstack_capture.torch_side.subclasses.suspended_modes import Level
from fxstack_capture.trace.rule_registry import run_plainly
from fxstack_capture.trace.state import Args, Kwargs, Trace

_LEVELS: dict[Any, Level] = {
    torch_compat.DisableTorchFunctionSubclass: Level.CLASSES_OFF,
    torch_compat.DisableTorchFunction: Level.ALL_OFF,
}
"""What each class of regions disables."""


def _enter(trace: Trace, fn: Any, args: Args, _kwargs: Kwargs) -> None:
    """Enter a region. The object is torch's own; entering it changes the state of the trace alone."""
    trace.torch.overrides.enter(args[0], _LEVELS[fn.__objclass__])


def _leave(trace: Trace, _fn: object, args: Args, _kwargs: Kwargs) -> None:
    """Leave a region."""
    trace.torch.overrides.leave(args[0])


for _kind in _LEVELS:
    RULES.add(run_plainly, _kind)
    RULES.add(_enter, _kind.__enter__)
    RULES.add(_leave, _kind.__exit__)


@RULES.rule(torch.device.__enter__)
def _device_enter(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Push the device's mode on the trace's stack.

    Torch's C code would push a mode that the trace does not know.
    """
    (device,) = args
    mode = trace.calls.call(DeviceContext, (device,), kwargs)
    trace.calls.call(PUSH, (mode,), {})
    return device


@RULES.rule(torch.device.__exit__)
def _device_exit(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Pop the device's mode from the trace's stack."""
    trace.calls.call(POP, (), {})


@RULES.rule(torch.Tensor.__torch_function__.__func__)
def _default(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Call the function without the ``__torch_function__`` of the class."""
    return trace.torch.overrides.default(*args, **kwargs)
