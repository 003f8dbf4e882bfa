"""Hooks that a program hangs on tensors while it is traced, and ``retain_grad``.

On a leaf from outside they are side effects: nobody asks for them before a gradient arrives, so they are set when the
graph has run. On what the graph computes they end the graph, and do so before the tensor was used: autograd sees the
uses that come after the end of a graph, not those inside of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fxstack_capture.breaks import graph_break

if TYPE_CHECKING:
    from fxstack_capture.breaks import GraphBreak
    from fxstack_capture.torch_side.tracer import TorchTracer


def register(tracer: TorchTracer, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The rule for ``register_hook`` and ``register_post_accumulate_grad_hook``."""
    tensor, rest = _owner(fn, args)
    if not tensor.requires_grad or (tracer.source_of(tensor) is not None and tensor.is_leaf):
        method = getattr(torch.Tensor, fn.__name__)
        return tracer.trace.interp.call_function(method, (tensor, *rest), kwargs)
    raise _end_before_use(tracer, tensor, fn.__name__)


def retain_grad(
    tracer: TorchTracer, fn: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]
) -> None:
    """The rule for ``retain_grad``, which does nothing to a leaf."""
    tensor, _ = _owner(fn, args)
    if not (tensor.is_leaf and tensor.requires_grad):
        raise _end_before_use(tracer, tensor, "retain_grad")


def _owner(fn: Any, args: tuple[Any, ...]) -> tuple[torch.Tensor, tuple[Any, ...]]:
    owner = getattr(fn, "__self__", None)
    return (owner, args) if isinstance(owner, torch.Tensor) else (args[0], args[1:])


def _end_before_use(tracer: TorchTracer, tensor: torch.Tensor, name: str) -> GraphBreak:
    reason = graph_break("unsupported-call", f"Tensor.{name}")
    if tracer.source_of(tensor) is None:
        users = tracer.builder.node_of(tensor).users
        reason.earlier = min(
            (tracer.steps[user] for user in users if user in tracer.steps), default=None
        )
    return reason
