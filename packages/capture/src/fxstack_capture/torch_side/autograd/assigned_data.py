"""``Tensor.data``, and ``tensor.data = other``.

The replacement code assigns the data after the graph has run. In the graph, from the assignment on, the other
tensor is used in place of the tensor, but its gradient still goes to the tensor.

Nodes before the assignment may have saved the earlier data for the backward, which must not see the new data.
Therefore these nodes read a separate tensor, ``data`` of the input.
"""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.sources import BuiltinAttr
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.recording.protocol import TracerProtocol

# Limits: in two cases the graph breaks: at an assignment to a tensor that requires grad and is made in the
# graph, and at a read after an assignment that changes the shape of a tensor that requires grad.


def load(tracer: TracerProtocol, tensor: torch.Tensor) -> torch.Tensor:
    """Load ``tensor.data``. The result shares the memory of the tensor, but not its history. Break the graph
    if only one of the two is an inference tensor.
    """
    data: torch.Tensor = tracer.record(getattr, (tensor, "data"), {})
    if data.is_inference() is not tensor.is_inference():  # in inference mode, fakes differ from real tensors
        raise graph_break("unsupported-call", "Tensor.data in inference mode")
    return data


def replace(tracer: TracerProtocol, tensor: torch.Tensor, value: object) -> torch.Tensor | None:
    """Run ``tensor.data = value``. Return the tensor that the replacement code assigns after the graph has
    run. Break the graph if the replacement code cannot make the assignment.

    Return None if the graph makes the tensor. It then leaves the graph with the new data.
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
    # If an operator has saved a leaf, the backward would read the new data.
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
    """Change the fake ``tensor`` so that it represents ``data`` in the rest of the graph. The graph has made
    ``tensor``.
    """
    becomes = tracer.record(with_data, (tensor, data), {}) if tensor.requires_grad else data
    with tracer.unrecorded():
        tensor.data = data
        tracer.note_entered(tensor, tracer.faker.fakes_at_start([tensor])[0])
    tracer.builder.alias(tensor, becomes)


class _WithData(torch.autograd.Function):
    """Returns the data. Its gradient goes to the leaf. ``with_data`` uses this function."""

    @staticmethod
    def forward(ctx: object, leaf: torch.Tensor, data: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - torch's signature
        """Return the new data without its history."""
        return data.data

    @staticmethod
    def backward(ctx: object, *gradients: object) -> Any:  # noqa: ARG004
        """Pass the gradient to the leaf. The data gets no gradient."""
        return gradients[0], None


def with_data(leaf: torch.Tensor, data: torch.Tensor) -> Any:
    """Return a tensor over the memory of ``data``. Its gradient goes to ``leaf``, even under ``no_grad``."""
    with torch.enable_grad():
        return _WithData.apply(leaf, data)
