"""Operators that torch's autocast treats differently in eager and in a trace.

Autocast casts the arguments of a call before the call reaches functionalisation. Two kinds of calls differ:

- An in-place operator has no rule, so eager does not cast. Functionalisation calls the functional operator,
  which may have a rule.
- Eager's kernel of an operator calls operators that have rules. A trace records the operator as one node, and
  the graph runs without autocast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import FunctionType
from typing import Any, Final

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.tracer.engine import Engine, ModeEngine
from fxstack_functionalize.tracer.inputs import RestartTraceError

_CASTS_INSIDE: Final[Mapping[object, str]] = {
    torch.ops.aten._trilinear.default: "bilinear",
    torch.ops.aten.linalg_pinv.atol_rtol_tensor: "linalg_pinv.atol_rtol_tensor",
    torch.ops.aten.linalg_polar.default: "linalg_polar",
}
"""Operators whose kernels call other operators to multiply matrices -> the name of the operator that programs call."""


def without_casts(
    engine: Engine, function: Callable[..., Any], *, simple: bool
) -> AbstractContextManager[Any]:
    """Return the context for a call of ``function`` that writes to arguments. As in eager, nothing is cast in it.

    A composition of other operators may contain both in-place operators and operators with rules. The mode of
    ``ModeEngine`` runs after autocast, so its functionalisation casts nothing. ``simple``: whether it is known
    that ``function`` is no composition.

    Raises:
        RestartTraceError: if ``function`` may be a composition, and the trace does not use ``ModeEngine``.
    """
    if not torch_compat.is_any_autocast_enabled() or isinstance(engine, ModeEngine):
        return nullcontext()
    # The functions of torch.nn.functional with a parameter ``inplace`` call in-place operators without rules.
    if isinstance(function, FunctionType) and function.__module__ == torch.nn.functional.__name__:
        return nullcontext()
    if not simple and _may_be_composition(function):
        raise RestartTraceError(lambda captured: replace(captured, needs_modes=True))
    off: AbstractContextManager[Any] = torch_compat.DisableAutocast()
    return off


def _may_be_composition(function: Callable[..., Any]) -> bool:
    """Whether an overload of ``function`` that writes to arguments may be a composition.

    True if no overload is known.
    """
    if isinstance(function, torch_compat.OpOverload):
        return bool(function._can_decompose())
    name = f"aten::{function.__name__}"
    packet = getattr(torch.ops.aten, function.__name__, None)
    overloads = [getattr(packet, key) for key in packet.overloads() if _is_known(name, key)] if packet else []
    writing = [overload for overload in overloads if overload._schema.is_mutable]
    return not writing or any(overload._can_decompose() for overload in writing)


def _is_known(name: str, overload: str) -> bool:
    """Whether the dispatcher has the overload. TorchScript has overloads that the dispatcher lacks."""
    return bool(torch_compat.has_operator(name if overload == "default" else f"{name}.{overload}"))


def dtype_inside(
    func: object, casting: Mapping[str, torch.dtype], args: tuple[Any, ...]
) -> torch.dtype | None:
    """Return the dtype to which eager's kernel casts the arguments of an operator; None if it does not cast them.

    ``casting``: device type -> autocast dtype, for devices on which autocast is on.

    Raises:
        UnsupportedGraphError: if the kernel does more than multiply the arguments.
    """
    caller = _CASTS_INSIDE.get(func)
    if caller is None:
        return None
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    device, dtype = tensors[0].device.type, tensors[0].dtype
    low = casting.get(device, dtype)
    if dtype in (low, torch.float64, torch.complex128) or torch_compat.has_kernel(
        f"aten::{caller}", f"Autocast{device.upper()}"
    ):
        return None
    if func is torch.ops.aten._trilinear.default:
        return low
    raise UnsupportedGraphError(
        f"{func} is called under autocast",
        why="eager's kernel multiplies matrices in the dtype of autocast, but the graph runs without autocast",
        fix="call it with autocast off, on tensors of the dtype that you want",
    )
