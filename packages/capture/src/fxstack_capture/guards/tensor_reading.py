"""The choice of the native code that reads tensors, and the self-test of the compiled code.

``prepare_tensors`` connects the native code to torch. At first the native code reads tensors without torch's
headers (the slow way). Later it reads them through the compiled ``native/readers/tensor_check.cpp``, once the
file is built and ``agrees_with_torch``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from fxstack_capture import native, torch_compat
from fxstack_capture.guards.records import TensorIs, TorchStateIs, tensor_facts
from fxstack_capture.guards.torch_state import snapshot
from fxstack_capture.sources import Local
from fxstack_interchange.format.literals import TORCH_LITERALS


def prepare_tensors(capsule: object = None) -> None:
    """Tell the native code how to read tensors: by the functions in ``capsule``, or in the slow way if it is
    None.

    Called at import without a capsule. ``TensorChecks`` calls it with the capsule of the compiled checks.
    """
    quiet = torch_compat.DisableTorchFunction
    native.use_tensors(torch_compat.TensorBase, torch_compat.dispatch_keys, quiet, capsule)


if native.AVAILABLE:
    prepare_tensors()
    native.use_literals(tuple(TORCH_LITERALS))
    native.use_profiler(vars(torch.autograd.profiler))


def _subject(value: object) -> object:
    """Return ``value``. The trees of the self-test are checked for frames of this function."""
    return value


def _tree(root: str, check: TensorIs | TorchStateIs) -> Any:
    """Return a native tree with one check. ``guards.tree`` imports this module, so this function builds the
    tree itself.
    """
    _source, kind, arguments = check.lower(Local("value"))
    access = (root, None) if root == "Nothing" else (root, 0)
    return native.Tree(((*access, 0, -1, ((kind, 0, arguments),), ()),), (), 0, 1)


def _holds(check: TensorIs, value: object) -> bool:
    """Whether the native code finds that ``check`` holds for ``value``."""
    return bool(_tree("Local", check).failing(_subject, (value,)) < 0)


def _samples() -> Iterator[torch.Tensor]:
    """Yield tensors for the self-test: views, other dtypes, an empty tensor, parameters, and a conjugated tensor."""
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
    """Return all facts of a tensor, with ``storage_offset`` and ``is_leaf``."""
    return replace(tensor_facts(tensor), storage_offset=tensor.storage_offset(), is_leaf=tensor.is_leaf)


def _spoiled(facts: TensorIs) -> Iterator[TensorIs]:
    """Yield copies of the facts. Each copy has one wrong fact, so its check must fail."""
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
    """Whether the native check accepts each sample with its own facts, and rejects the sample with any wrong
    fact.
    """
    with torch.inference_mode(mode=False), torch.enable_grad():
        samples = tuple(_samples())
    for tensor in samples:
        facts = _full_facts(tensor)
        if not _holds(facts, tensor) or any(_holds(wrong, tensor) for wrong in _spoiled(facts)):
            return False
    return True


def _state_agrees() -> bool:
    """Whether the check notices a changed grad mode, and accepts the restored state."""
    tree = _tree("Nothing", TorchStateIs(snapshot()))
    enabled = torch.is_grad_enabled()
    before = [tree.failing(_subject, (None,)) for _ in range(2)]
    with torch.set_grad_enabled(not enabled):
        within = tree.failing(_subject, (None,))
    return before == [-1, -1] and within == 0 and tree.failing(_subject, (None,)) == -1


def agrees_with_torch() -> bool:
    """Whether the native code reads tensors and torch's state correctly. ``TensorChecks`` calls this self-test once."""
    return _tensors_agree() and _state_agrees()
