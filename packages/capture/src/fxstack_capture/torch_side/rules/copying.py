"""``copy.deepcopy`` of tensors: a copy of the memory, which is what ``clone`` makes of tensors that fill theirs.

Tensors that share memory share it after one deep copy, too, and a copied leaf is a new leaf; those are made outside of the graph.
"""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import LengthIs
from fxstack_capture.sources import InstanceDict
from fxstack_capture.torch_side.autograd.gradients import is_dense
from fxstack_capture.torch_side.recording.protocol import TracerProtocol

# Limits: a memo that the program passes to deepcopy does not get the entries that torch makes for memory.


class Copies:
    """The memory that each deep copy of a trace has met, by the memo of the copy."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[dict[Any, Any], set[int]]] = {}

    def is_first(self, tensor: torch.Tensor, memo: dict[Any, Any]) -> bool:
        """Whether the copy has not met this memory yet; it has from now on."""
        _, met = self._met.setdefault(id(memo), (memo, set()))
        storage = tensor.untyped_storage()._cdata
        is_new = storage not in met
        met.add(storage)
        return is_new


def deepcopy(tracer: TracerProtocol, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """``Tensor.__deepcopy__(memo)``. Raises GraphBreak where the copy is more than new memory."""
    arguments = (fn.__self__, *args) if isinstance(getattr(fn, "__self__", None), torch.Tensor) else args
    if len(arguments) == 2 and not kwargs and type(arguments[1]) is dict:
        tensor, memo = arguments
        tracer.guard_offsets()
        is_plain = tracer.python_type(tensor) is torch.Tensor and _fills_its_memory(tensor)
        alone = is_plain and not _has_attributes(tracer, tensor)
        if alone and tracer.copies.is_first(tensor, memo):
            options = {"memory_format": torch.preserve_format}
            return tracer.record(torch.clone, (tensor,), options)
    raise graph_break("unsupported-call", "Tensor.__deepcopy__")


def _fills_its_memory(tensor: torch.Tensor) -> bool:
    """A plain tensor without history or attributes, all of whose memory is its own, in some order of dimensions."""
    if tensor.requires_grad or tensor.layout is not torch.strided:
        return False
    if tensor.is_conj() or tensor.is_neg() or tensor.is_inference() or tensor.is_quantized:
        return False
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    if any(type(number) is not int for number in numbers):
        return False
    count = tensor.numel() * tensor.element_size()
    is_whole = tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == count
    return is_whole and is_dense(tensor)


def _has_attributes(tracer: TracerProtocol, tensor: torch.Tensor) -> bool:
    """Whether the program has put attributes on the tensor, which the copy would have, too."""
    real, source = tracer.original_of(tensor)
    if source is not None and real is not None and not real.__dict__:
        tracer.trace.guard(InstanceDict(source), LengthIs(0))
        source = None
    return source is not None or bool(tracer.attributes_of(tensor))
