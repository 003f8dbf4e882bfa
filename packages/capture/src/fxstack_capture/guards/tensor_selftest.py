"""A self-test of the tensor checks: do the checks read the same facts as torch?

The self-test runs before the compiled checks are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from fxstack_capture import native
from fxstack_capture.guards.lowering import CHECKS
from fxstack_capture.guards.records import Check, TensorIs, TorchStateIs
from fxstack_capture.guards.tensors import tensor_facts
from fxstack_capture.guards.torch_state import snapshot
from fxstack_capture.sources import Local


def _subject(value: object) -> object:
    """Return ``value``. The test trees describe the frame of this function."""
    return value


def _holds(check: Check, value: object) -> bool:
    _source, kind, arguments = CHECKS[type(check)][1](Local("value"), check)
    root = ("Local", 0, 0, -1, ((kind, 0, arguments),), ())
    return bool(native.Tree((root,), (), 0, 1).failing(_subject, (value,)) < 0)


def _samples() -> Iterator[torch.Tensor]:
    base = torch.zeros(2, 3, 4)
    yield base
    yield base.transpose(0, 2)
    yield base[1:, :, ::2]
    yield torch.zeros(5, dtype=torch.int64)
    yield torch.zeros((), dtype=torch.bfloat16)
    yield torch.zeros(2, 0)
    yield torch.zeros(3, requires_grad=True)
    yield torch.zeros(3, requires_grad=True) * 2
    yield torch.nn.Parameter(torch.zeros(2, 2))
    yield torch.zeros(2, dtype=torch.complex64).conj()


def _full_facts(tensor: torch.Tensor) -> TensorIs:
    return replace(tensor_facts(tensor), storage_offset=tensor.storage_offset(), is_leaf=tensor.is_leaf)


def _spoiled(facts: TensorIs) -> Iterator[TensorIs]:
    yield replace(facts, requires_grad=not facts.requires_grad)
    yield replace(facts, is_leaf=not facts.is_leaf)
    yield replace(facts, dtype=torch.float64)
    yield replace(facts, device=torch.device("meta"))
    yield replace(facts, sizes=(*facts.sizes, 1), strides=(*(facts.strides or ()), 1))
    yield replace(facts, storage_offset=(facts.storage_offset or 0) + 1)
    yield replace(facts, keyset=facts.keyset ^ 1)
    if facts.sizes:
        yield replace(facts, sizes=((facts.sizes[0] or 0) + 1, *facts.sizes[1:]))
        strides = facts.strides or ()
        yield replace(facts, strides=((strides[0] or 0) + 7, *strides[1:]))


def _tensors_agree() -> bool:
    with torch.inference_mode(mode=False), torch.enable_grad():
        samples = tuple(_samples())
    for tensor in samples:
        facts = _full_facts(tensor)
        if not _holds(facts, tensor) or any(_holds(wrong, tensor) for wrong in _spoiled(facts)):
            return False
    return True


def _state_agrees() -> bool:
    """Whether the check notices a changed grad mode, and accepts the restored state."""
    check = TorchStateIs(snapshot())
    _source, kind, arguments = CHECKS[TorchStateIs][1](Local("value"), check)
    tree: Any = native.Tree((("Nothing", None, 0, -1, ((kind, 0, arguments),), ()),), (), 0, 1)
    enabled = torch.is_grad_enabled()
    before = [tree.failing(_subject, (None,)) for _ in range(2)]
    with torch.set_grad_enabled(not enabled):
        within = tree.failing(_subject, (None,))
    return before == [-1, -1] and within == 0 and tree.failing(_subject, (None,)) == -1


def agrees_with_torch() -> bool:
    """Whether the checks read tensors and torch's state correctly.

    Some samples must pass, others must fail.
    """
    return _tensors_agree() and _state_agrees()
