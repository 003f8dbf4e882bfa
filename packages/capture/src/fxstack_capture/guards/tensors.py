"""Facts about tensors that guards demand, and the choice of how guards read them.

``tensor_facts`` describes a real tensor as the native check will see it. ``prepare_tensors`` points the
native
side at torch: header-free at first, through the compiled ``native/tensor_check.cpp`` once that is built.
"""

from __future__ import annotations

import torch

from fxstack_capture import native, torch_compat
from fxstack_capture.guards.records import TensorIs
from fxstack_interchange.format.literals import TORCH_LITERALS


def tensor_facts(tensor: torch.Tensor) -> TensorIs:
    """All static facts of a tensor: sizes and (strided layout) strides as numbers, offset and leafness not
    demanded.

    Replace entries of ``sizes``/``strides`` by None where they are dynamic, set ``storage_offset`` and
    ``is_leaf`` where they matter (``dataclasses.replace``).
    """
    with torch_compat.DisableTorchFunction():
        strided = tensor.layout is torch.strided
        return TensorIs(
            cls=type(tensor),
            keyset=torch_compat.dispatch_keys(tensor).raw_repr(),
            dtype=tensor.dtype,
            device=tensor.device,
            layout=tensor.layout,
            requires_grad=tensor.requires_grad,
            sizes=tuple(int(size) for size in tensor.shape),
            strides=tuple(int(stride) for stride in tensor.stride()) if strided else None,
        )


def prepare_tensors(capsule: object = None) -> None:
    """Tell the native side what a tensor is and, with a capsule, to read tensors through the compiled
    checks.
    """
    quiet = torch_compat.DisableTorchFunction
    native.use_tensors(torch_compat.TensorBase, torch_compat.dispatch_keys, quiet, capsule)


if native.AVAILABLE:
    prepare_tensors()
    native.use_literals(tuple(TORCH_LITERALS))
