"""Torch's global state on which a graph depends: a snapshot, its comparison, and the text of a difference.

``snapshot()`` is taken when a trace starts. It becomes the condition of ``TorchStateIs``. The native guard
calls the same getters and compares the results. With the compiled tensor checks, the guard compares one small
struct instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fxstack_capture import native, torch_compat

_DEVICES = ("cpu", "cuda")
"""The device types whose autocast state guards check."""


@dataclass(frozen=True, slots=True)
class Getter:
    """One piece of state: its name for messages, and the C function (with arguments) that reads it."""

    name: str
    """The name for messages, for example "grad mode"."""
    function: Callable[..., Any]
    """The C function."""
    args: tuple[object, ...] = ()
    """The arguments of the function."""
    by_class: bool = False
    """Whether the guard compares only the class of the result."""

    def read(self) -> Any:
        """Return the current value, or its class if ``by_class`` is true."""
        value = self.function(*self.args)
        return type(value) if self.by_class else value


def _autocast_getters(device: str) -> tuple[Getter, ...]:
    """Return the getters of the autocast state of a device type."""
    return (
        Getter(f"autocast on {device}", torch.is_autocast_enabled, (device,)),
        Getter(f"autocast dtype on {device}", torch.get_autocast_dtype, (device,)),
    )


GETTERS: tuple[Getter, ...] = (
    Getter("grad mode", torch.is_grad_enabled),
    Getter("inference mode", torch.is_inference_mode_enabled),
    *(getter for device in _DEVICES for getter in _autocast_getters(device)),
    Getter("autocast cache", torch.is_autocast_cache_enabled),
    Getter("default dtype", torch.get_default_dtype),
    Getter("deterministic algorithms", torch_compat.get_deterministic_algorithms),
    Getter("deterministic algorithms: warn only", torch_compat.get_deterministic_algorithms_warn_only),
    Getter("fill uninitialized memory", torch_compat.get_deterministic_fill_uninitialized_memory),
    Getter("number of threads", torch.get_num_threads),
    Getter("torch function enabled", torch_compat.is_torch_function_enabled),
    Getter("torch function disabled for modes", torch_compat.is_torch_function_all_disabled),
    Getter("number of torch-function modes", torch_compat.len_torch_function_stack),
    Getter("number of torch-dispatch modes", torch_compat.len_torch_dispatch_stack),
    Getter("depth of the functorch stack", torch_compat.get_dynamic_layer_stack_depth),
    Getter("saved-tensor hooks", native.hooks)
    if native.AVAILABLE
    else Getter("saved-tensor hooks", torch_compat.top_saved_tensors_default_hooks, (True,), True),
    Getter("TorchScript's tracer", torch_compat.get_tracing_state),
)
"""The getters in the order of comparison. All are C functions, so reading the state runs no Python code.

The guard checks whether saved-tensor hooks are active, but not which hooks they are. No graph depends on the
hooks: the function that runs a graph reads them in each call.
"""

if native.AVAILABLE:
    native.use_hooks(torch_compat.top_saved_tensors_default_hooks)


function_mode_at = torch_compat.get_function_stack_at
"""The function of torch that returns the torch-function mode at an index. Index 0 is the outermost mode."""


def _function_modes() -> tuple[object, ...]:
    """Return the active torch-function modes, outermost first."""
    return tuple(function_mode_at(i) for i in range(torch_compat.len_torch_function_stack()))


@dataclass(frozen=True, slots=True)
class TorchState:
    """A snapshot: the values of ``GETTERS`` in order, and the torch-function modes.

    ``torch.set_default_device`` is a torch-function mode.
    """

    values: tuple[Any, ...]
    """The results of ``GETTERS`` in order."""
    function_modes: tuple[object, ...] = ()
    """The torch-function modes, outermost first."""

    def value_of(self, name: str) -> Any:
        """Return the value of the getter called ``name``. Raises KeyError if no getter has this name."""
        for getter, value in zip(GETTERS, self.values, strict=True):
            if getter.name == name:
                return value
        raise KeyError(name)


def snapshot() -> TorchState:
    """Return the current state of the calling thread. Called at the start of a trace, and for messages."""
    return TorchState(tuple(getter.read() for getter in GETTERS), _function_modes())


def difference(old: TorchState, new: TorchState) -> str | None:
    """Return the first difference as text ("grad mode was True, is now False"). None if the states are equal."""
    for getter, before, after in zip(GETTERS, old.values, new.values, strict=True):
        if before != after:
            return f"{getter.name} was {before!r}, is now {after!r}"
    if len(old.function_modes) != len(new.function_modes) or any(
        a is not b for a, b in zip(old.function_modes, new.function_modes, strict=True)
    ):
        return f"torch-function modes were {old.function_modes!r}, are now {new.function_modes!r}"
    return None
