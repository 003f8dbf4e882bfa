"""Rules for the stack of modes, for the level of overrides, and for the construction of subclasses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.overrides import MODE_AT, POP, PUSH
from fxstack_capture.torch_side.subclasses.suspended_modes import Level
from fxstack_capture.trace.state import Args, Kwargs


def _push(tracer: TracerProtocol, _fn: object, args: Args, _kwargs: Kwargs) -> None:
    """Apply the rule for pushing a mode. The mode is added to the list in the trace."""
    tracer.overrides.modes.append(args[0])


def _pop(tracer: TracerProtocol, fn: Callable[..., Any], _args: Args, _kwargs: Kwargs) -> Any:
    """Apply the rule for popping a mode. Break the graph if the mode was pushed outside of the trace."""
    if not tracer.overrides.modes:
        raise graph_break("side-effect-call", fn.__name__)
    return tracer.overrides.modes.pop()


def _count(tracer: TracerProtocol, _fn: object, _args: Args, _kwargs: Kwargs) -> int:
    """Return the number of modes that the program sees."""
    outside: int = torch_compat.len_torch_function_stack()
    return outside + len(tracer.overrides.modes)


@calls_program
def _at(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, _kwargs: Kwargs) -> Any:
    """Return the mode at a position of the stack, as the program sees the stack."""
    outside = torch_compat.len_torch_function_stack()
    return fn(*args) if args[0] < outside else tracer.overrides.modes[args[0] - outside]


@calls_program
def _is_mode_on(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> bool:
    """Return whether a mode is on for the program."""
    return tracer.overrides.level < Level.ALL_OFF and bool(tracer.overrides.modes or fn(*args, **kwargs))


def _is_at(level: Level) -> Callable[..., bool]:
    """Return the rule of a getter that is true at exactly one level of overrides."""
    return lambda tracer, _fn, _args, _kwargs: tracer.overrides.level is level


def _has_overrides(tracer: TracerProtocol, fn: object, args: Args, _kwargs: Kwargs) -> bool:
    """Apply the rule for ``has_torch_function(iterable)``, and for its variants with separate values."""
    return tracer.overrides.overriding(args[0] if fn is torch_compat.has_torch_function else args)


def _handle(tracer: TracerProtocol, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``torch.overrides.handle_torch_function``."""
    func, relevant, *rest = args
    return tracer.overrides.handle(func, relevant, tuple(rest), kwargs)


@calls_program
def _default_device(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``torch.get_default_device``. It calls a mode of the program. Break the graph if
    there is one.
    """
    if tracer.overrides.modes:
        raise graph_break("unsupported-call", f"torch.{fn.__name__} under a torch-function mode")
    return fn(*args, **kwargs)


def _as_subclass(tracer: TracerProtocol, fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``Tensor.as_subclass``."""
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.Tensor):
        args = (owner, *args)
    cls = kwargs["cls"] if kwargs else args[1]
    return tracer.overrides.as_subclass(args[0], cls)


def _make_subclass(tracer: TracerProtocol, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``Tensor._make_subclass``. Break the graph for a result that requires grad."""
    cls, data, *flags = args
    if any(flags) or any(kwargs.values()):
        raise graph_break("unsupported-call", "Tensor._make_subclass(require_grad=True)")
    return tracer.overrides.make_subclass(cls, data)


def _new(tracer: TracerProtocol, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``torch.Tensor.__new__(cls, tensor)``. It returns a view of the tensor. Break the
    graph for other arguments.
    """
    if kwargs or len(args) != 2 or not isinstance(args[1], torch.Tensor):
        raise graph_break("unsupported-call", f"the constructor of {args[0].__qualname__}")
    return tracer.overrides.as_subclass(args[1], args[0])


AS_SUBCLASS: Callable[..., Any] = _as_subclass

RULES: dict[Any, Callable[..., Any]] = {
    PUSH: _push,
    POP: _pop,
    MODE_AT: _at,
    torch_compat.len_torch_function_stack: _count,
    torch_compat.is_torch_function_mode_enabled: _is_mode_on,
    torch_compat.is_torch_function_enabled: _is_at(Level.ALL_ON),
    torch_compat.is_torch_function_all_disabled: _is_at(Level.ALL_OFF),
    torch_compat.has_torch_function: _has_overrides,
    torch_compat.has_torch_function_unary: _has_overrides,
    torch_compat.has_torch_function_variadic: _has_overrides,
    torch.overrides.handle_torch_function: _handle,
    torch.get_default_device: _default_device,
    torch_compat.make_subclass: _make_subclass,
    torch_compat.make_wrapper_subclass: lambda tracer, *call: tracer.wrappers.construct(*call),
    torch.Tensor.__new__: _new,
}
