"""``Tensor.data``, and ``tensor.data = other``.

The replacement code assigns the data after the graph has run. In the graph the tensor stands for the other tensor
from the assignment on, and its gradient still goes to the tensor. A backward must not see the new data where the
graph has read the earlier data, so the nodes before the assignment read ``data`` of the input, a tensor of its own.
"""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.sources import BuiltinAttr
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.recording.protocol import TracerProtocol

# Limits: the graph breaks at an assignment to a tensor that requires grad and is made in the graph, and at a read
# after an assignment that changes the shape of a tensor that requires grad.


def load(tracer: TracerProtocol, tensor: torch.Tensor) -> torch.Tensor:
    """Load ``tensor.data``, which shares the memory of the tensor but not its history."""
    data: torch.Tensor = tracer.record(getattr, (tensor, "data"), {})
    if data.is_inference() is not tensor.is_inference():  # fakes differ from real tensors here
        raise graph_break("unsupported-call", "Tensor.data in inference mode")
    return data


def replace(tracer: TracerProtocol, tensor: torch.Tensor, value: object) -> torch.Tensor | None:
    """Set ``tensor.data = value``. Return the tensor that the replacement code assigns after the graph has run.

    Return None for a tensor that the graph makes and that leaves it with the new data.
    """
    builder, source = tracer.builder, tracer.source_of(tensor)
    are_known = type(tensor) is type(value) is FakeTensor and id(value) not in builder.replaced
    if not are_known or not isinstance(value, torch.Tensor):
        raise graph_break("unsupported-object", "assignment to Tensor.data")
    with tracer.unrecorded():
        plain = not tensor.requires_grad
        kinds = [(t.device, t.layout, t.is_inference()) for t in (tensor, value)]
        is_possible = kinds[0] == kinds[1] and (plain or (source is not None and tensor.dtype == value.dtype))
        can_be_read = plain or (tensor.is_leaf and tensor.shape == value.shape)
    # A backward reads the new data of a leaf that an operator saved.
    if not is_possible or not builder.is_read_without_history(tensor):
        raise graph_break("unsupported-object", "assignment to Tensor.data")
    data = load(tracer, value)
    if source is not None:
        with tracer.unrecorded():
            before = tracer.faker.fakes_at_start([tensor])[0].detach()
        builder.read_from(tensor, BuiltinAttr(source, "data"), before)
    if can_be_read and id(tensor) not in builder.replaced and not tracer.transforms.inside:
        _replace_in_graph(tracer, tensor, data)
        return None if source is None else data
    builder.replaced.add(id(tensor))
    return data


def _replace_in_graph(tracer: TracerProtocol, tensor: torch.Tensor, data: torch.Tensor) -> None:
    """Change the fake ``tensor``, which the graph has made, so that it stands for ``data`` in the rest of the graph."""
    becomes = tracer.record(with_data, (tensor, data), {}) if tensor.requires_grad else data
    with tracer.unrecorded():
        tensor.data = data
        tracer.note_entered(tensor, tracer.faker.fakes_at_start([tensor])[0])
    tracer.builder.alias(tensor, becomes)


class _WithData(torch.autograd.Function):
    """Returns the data, with a gradient that goes to the leaf, for ``with_data``."""

    @staticmethod
    def forward(ctx: object, leaf: torch.Tensor, data: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - torch's signature
        """Return the new data without its history."""
        return data.data

    @staticmethod
    def backward(ctx: object, *gradients: object) -> Any:  # noqa: ARG004
        """Pass the gradient to the leaf. The data gets no gradient."""
        return gradients[0], None


def with_data(leaf: torch.Tensor, data: torch.Tensor) -> Any:
    """Return a tensor over the memory of ``data`` whose gradient goes to ``leaf``, also if ``no_grad`` is on."""
    with torch.enable_grad():
        return _WithData.apply(leaf, data)
