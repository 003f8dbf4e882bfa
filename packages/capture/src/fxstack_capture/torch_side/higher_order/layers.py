"""Rules for the C functions that push and pop the layers of ``torch.func`` and wrap tensors.

The rules really call the functions (see ``transforms``). The rules skip torch's Python wrappers of some
functions (``predispatch``), which check for an export.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.torch_compat import predispatch
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

Rule = Callable[[TracerProtocol, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

_C = torch_compat.functorch


def _layer(tracer: TracerProtocol, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for functions of layers: really call the function, without torch's Python wrapper."""
    return tracer.transforms.run(_BELOW.get(fn, fn), args, kwargs)


def _flag(tracer: TracerProtocol, fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Read or set a flag that no operator reads. Guard the value of the flag outside of the trace."""
    tracer.guard_flag(_FLAGS[fn])
    return _layer(tracer, fn, args, kwargs)


def _dual(levels: int) -> Rule:
    """Return the rule of functions that enter (1) or exit (-1) a level of forward-mode AD."""
    return lambda tracer, fn, args, kwargs: tracer.transforms.run_dual(
        _BELOW.get(fn, fn), args, kwargs, levels
    )


def _add_batch_dim(tensor: torch.Tensor, dim: int, level: int) -> torch.Tensor:
    """Convert a negative dimension as torch's Python wrapper does. The C function accepts no negative dimension."""
    return _C._add_batch_dim(tensor, tensor.ndim + dim if dim < 0 else dim, level)


_WRAPPERS = {
    name: value
    for name, value in vars(predispatch).items()
    if callable(value) and hasattr(predispatch, f"{name}_impl")
}
_BELOW: dict[Any, Callable[..., Any]] = {
    value: _add_batch_dim if name == "_add_batch_dim" else getattr(predispatch, f"{name}_impl")
    for name, value in _WRAPPERS.items()
}

_LAYERS = (
    *("_vmap_increment_nesting", "_vmap_decrement_nesting", "_add_batch_dim", "_remove_batch_dim"),
    *("_grad_increment_nesting", "_grad_decrement_nesting", "_wrap_for_grad", "_unwrap_for_grad"),
    *("_jvp_increment_nesting", "_jvp_decrement_nesting"),
    *("_func_increment_nesting", "_func_decrement_nesting", "_wrap_functional_tensor"),
    *("_unwrap_functional_tensor", "_assert_wrapped_functional", "_unwrap_batched"),
    *("_propagate_functional_input_mutation", "get_unwrapped", "unwrap_if_dead"),
    *("set_inplace_requires_grad_allowed", "get_inplace_requires_grad_allowed"),
    *("is_batchedtensor", "is_gradtrackingtensor", "is_functionaltensor", "is_dead_tensor_wrapper"),
    *("maybe_get_level", "maybe_get_bdim", "current_level", "get_dynamic_layer_stack_depth"),
)
_OTHERS = (
    torch_compat.make_dual,
    torch_compat.unpack_dual,
    *(getattr(torch, f"_{name}_functional_tensor") for name in ("to", "from", "is")),
    torch_compat.functional_sync,
    torch_compat.are_functorch_transforms_active,
)

_MESSAGE = torch_compat.saved_tensors_hooks_get_disabled_error_message
_FLAGS: dict[Any, Callable[[], Any]] = {
    torch_compat.is_fwd_grad_enabled: torch_compat.is_fwd_grad_enabled,
    torch_compat.set_fwd_grad_enabled: torch_compat.is_fwd_grad_enabled,
    _MESSAGE: _MESSAGE,
    torch_compat.saved_tensors_hooks_disable: _MESSAGE,
    torch_compat.saved_tensors_hooks_enable: _MESSAGE,
}
"""The getter of the flag that each function reads or sets."""

RULES: dict[Any, Rule] = {
    **dict.fromkeys(_FLAGS, _flag),
    **dict.fromkeys((getattr(_C, name) for name in _LAYERS if hasattr(_C, name)), _layer),
    **dict.fromkeys(_OTHERS, _layer),
    **dict.fromkeys(_WRAPPERS.values(), _layer),
    torch_compat.enter_dual_level: _dual(1),
    torch_compat.exit_dual_level: _dual(-1),
    **{
        getattr(predispatch, name): rule
        for name, rule in (("_enter_dual_level", _dual(1)), ("_exit_dual_level", _dual(-1)))
        if hasattr(predispatch, name)  # torch 2.11 does not have these wrappers
    },
}
