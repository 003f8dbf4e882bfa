"""``torch.inference_mode`` that the program enters and leaves inside of a trace.

The trace really turns the mode on. Therefore fakes are inference tensors as in eager, and operators raise the
errors of eager. The graph sets the grad mode that belongs to inference mode, and computes ordinary tensors.
If a result is an inference tensor in eager, it becomes an inference tensor over the same memory when it
leaves the graph.

``Region`` replaces torch's C object in the ``with`` block. After a graph break, the replacement code enters
the region.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_side.global_state import state
from fxstack_capture.torch_side.global_state.state import Region, Regions
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

Rule = Callable[[TracerProtocol, Callable[..., Any], Args, Kwargs], Any]


# Limits: three things break the graph: entering inference_mode under inference mode, making a leaf in
# inference_mode, and the end of an inference_mode block that began before the graph.


def _make(_tracer: TracerProtocol, _fn: object, args: Args, kwargs: Kwargs) -> Region:
    """Apply the rule for the constructor of ``torch._C._InferenceMode``: return a ``Region``. Break the graph
    for an argument that is no bool.
    """
    if kwargs or len(args) != 1 or type(args[0]) is not bool:
        raise graph_break("unsupported-call", "torch._C._InferenceMode of what is no bool")
    region = Region.__new__(Region)
    region.__dict__.update(mode=args[0], guard=None)
    return region


def _enter(tracer: TracerProtocol, _fn: object, args: Args, _kwargs: Kwargs) -> None:
    """Apply the rule for ``Region.__enter__``: turn the mode on, and set the grad mode in the graph. Break
    the graph inside of the program's own inference mode or of a transform.
    """
    regions, (region,) = tracer.regions, args
    if regions.outer:
        raise graph_break("unsupported-call", "torch.inference_mode inside of inference mode")
    if tracer.transforms.inside:
        raise graph_break("unsupported-call", "torch.inference_mode under a transform")
    before = state.present()
    regions.enter(region)
    _write(tracer, before)


def _leave(tracer: TracerProtocol, _fn: object, args: Args, _kwargs: Kwargs) -> None:
    """Apply the rule for ``Region.__exit__``: restore the outer mode in the trace and in the graph. Break the
    graph if the trace has not entered the region.
    """
    opened = tracer.regions.open
    if not opened or opened[-1].region is not args[0]:
        raise graph_break("unsupported-call", "the end of a torch.inference_mode from outside")
    before = state.present()
    tracer.regions.leave()
    _write(tracer, before)


def _write(tracer: TracerProtocol, before: state.State) -> None:
    """Record the changes of torch's state since ``before``, as far as operators of the graph depend on it."""
    for redo in state.difference(before, state.present(), in_graph=True):
        tracer.record_effect(*redo)


def finish_of(tensor: torch.Tensor) -> Callable[[Any], Any] | None:
    """Return the function that turns a graph result into the kind of tensor that eager has. None if it
    already is.

    If the trace has entered inference mode, the replacement code calls the function.
    """
    if tensor.is_inference():
        return as_inference
    creation_meta = torch_compat.get_creation_meta(tensor) if tensor._is_view() else None
    return as_view_made_inside if creation_meta == _MADE_INSIDE else None


_MADE_INSIDE = torch_compat.CreationMeta.INFERENCE_MODE


def as_inference(tensor: torch.Tensor) -> torch.Tensor:
    """Return an inference tensor over the memory of ``tensor``, a graph result."""
    with torch.inference_mode():
        alias = tensor.new_empty(0)
        offset, size, stride = tensor.storage_offset(), tensor.size(), tensor.stride()
        alias.set_(tensor.untyped_storage(), offset, size, stride)
        alias = torch_compat.neg_view(alias) if tensor.is_neg() else alias
        return torch_compat.conj_view(alias) if tensor.is_conj() else alias


def as_view_made_inside(tensor: torch.Tensor) -> torch.Tensor:
    """Mark a view of an ordinary tensor as made in inference mode. In-place writes outside then raise an
    error.
    """
    if tensor._is_view():
        torch_compat.set_creation_meta(tensor, _MADE_INSIDE)
    return tensor


def demand_supported(regions: Regions, leaf: torch.Tensor) -> None:
    """Break the graph if ``leaf``, a result that requires grad, is an inference tensor. Plain Python then
    makes it.
    """
    if regions.open and leaf.is_inference():
        raise graph_break("unsupported-tensor", "a leaf that requires grad, in inference mode")


RULES: dict[Any, Rule] = {
    torch_compat.InferenceMode: _make,
    Region.__enter__: _enter,
    Region.__exit__: _leave,
}
