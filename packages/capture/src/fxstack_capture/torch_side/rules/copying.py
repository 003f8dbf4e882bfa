"""``copy.deepcopy`` of tensors: ``clone`` copies a tensor that fills its storage.

Tensors that share memory must share memory after one deep copy, too. The copy of a leaf must be a new leaf.
Both cases break the graph.
"""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import LengthIs
from fxstack_capture.sources import InstanceDict
from fxstack_capture.torch_side.autograd.accumulation import is_dense
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

# Limits: a memo that the program passes to deepcopy does not get the entries that torch adds for storages.


class Copies:
    """The storages that each deep copy of a trace has copied, by the memo of the deep copy."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[dict[Any, Any], set[int]]] = {}

    def is_first(self, tensor: torch.Tensor, memo: dict[Any, Any]) -> bool:
        """Return whether the deep copy has not met this storage before. Add the storage to the memo's set."""
        _, met = self._met.setdefault(id(memo), (memo, set()))
        storage = tensor.untyped_storage()._cdata
        is_new = storage not in met
        met.add(storage)
        return is_new


def deepcopy(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """Apply the rule for ``Tensor.__deepcopy__(memo)``.

    Break the graph if ``clone`` cannot express the copy.
    """
    if len(args) == 2 and not kwargs and type(args[1]) is dict:
        tensor, memo = args
        tracer.guard_offsets()
        is_plain = tracer.python_type(tensor) is torch.Tensor and _fills_its_memory(tensor)
        alone = is_plain and not _has_attributes(tracer, tensor)
        if alone and tracer.copies.is_first(tensor, memo):
            options = {"memory_format": torch.preserve_format}
            return tracer.record(torch.clone, (tensor,), options)
    raise graph_break("unsupported-call", "Tensor.__deepcopy__")


def _fills_its_memory(tensor: torch.Tensor) -> bool:
    """Return whether a tensor without history is dense and covers its whole storage, in any order of dimensions."""
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
    """Return whether the program has assigned attributes to the tensor.

    The deep copy would need the attributes, too.
    """
    real, source = tracer.original_of(tensor)
    if source is not None and real is not None and not real.__dict__:
        tracer.trace.guard(InstanceDict(source), LengthIs(0))
        source = None
    return source is not None or bool(tracer.attributes_of(tensor))
