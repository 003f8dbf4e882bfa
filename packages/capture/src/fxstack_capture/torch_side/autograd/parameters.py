"""Leaves that the program makes: parameters, and results that require grad because of such leaves.

No code can see the gradient of a leaf that stays inside of the graph. For later stages, a result that
requires grad only for such leaves is a result that does not require grad. The replacement code gives such a
result a history that drops the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.autograd import gradients
from fxstack_capture.torch_side.fakes.writes import is_leaf
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.fake_classes import shown_class


@calls_program
def make(tracer: TracerProtocol, data: object, requires_grad: bool) -> torch.Tensor:
    """Record ``torch.nn.Parameter(data, requires_grad)``. Raise the exceptions of ``Parameter``."""
    if not isinstance(data, FakeTensor) or shown_class(data) is not None:
        raise graph_break("unsupported-call", "torch.nn.Parameter of what is no plain tensor of the graph")
    if requires_grad and not (data.is_floating_point() or data.is_complex()):
        torch_compat.make_subclass(nn.Parameter, torch.zeros((), dtype=data.dtype), True)  # raises the error
    made: torch.Tensor = tracer.record(torch.Tensor.detach, (data,), {})
    if requires_grad:
        tracer.record(torch.Tensor.requires_grad_, (made,), {})
    made._is_param = True
    tracer.leave_as(made, as_parameter)
    return made


def as_parameter(tensor: torch.Tensor) -> torch.Tensor:
    """Set the class of the result to ``Parameter``."""
    # A new object would not do: autograd's history leads to the tensor object that the graph returns.
    tensor.__class__ = nn.Parameter
    return tensor


def has_hidden_history(tracer: TracerProtocol, tensor: torch.Tensor) -> bool:
    """Whether a result requires grad, and the graph made all leaves of its history."""
    if not tensor.requires_grad or is_leaf(tensor) is not False:
        return False
    for node in gradients.history([tensor]):
        leaf = getattr(node, "variable", None)
        outside = leaf is not None and tracer.source_of(leaf) is not None
        if outside or node.name() == gradients.OUTSIDE:
            return False
    return True


class _Dropped(torch.autograd.Function):
    """The identity. The gradient goes to a leaf that no code holds."""

    @staticmethod
    def forward(ctx: object, tensor: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - torch's signature
        return tensor.data

    @staticmethod
    def backward(ctx: object, *gradients: object) -> Any:  # noqa: ARG004
        return None, None


def with_hidden_history(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` with ``requires_grad``, as a non-leaf."""
    if tensor.requires_grad:  # the captured graph itself ran, with autograd
        return tensor
    with torch.enable_grad():
        leaf = torch.empty(0, requires_grad=True)
        return _Dropped.apply(tensor, leaf)
