"""Facts about tensors that guards demand, and the choice of the code that reads them.

``tensor_facts`` describes a real tensor as the native check reads the tensor. ``prepare_tensors`` connects
the native code to torch: without torch's headers at first, and through the compiled
``native/tensor_check.cpp`` once it is built.
"""

from __future__ import annotations

import torch

from fxstack_capture import native, torch_compat
from fxstack_capture.guards.records import TensorIs
from fxstack_interchange.format.literals import TORCH_LITERALS


def tensor_facts(tensor: torch.Tensor) -> TensorIs:
    """Return all static facts of a tensor. Sizes and the strides of a strided layout are numbers.

    The facts do not demand ``storage_offset`` and ``is_leaf``. The caller replaces dynamic entries of
    ``sizes`` and ``strides`` by None and sets ``storage_offset`` and ``is_leaf`` if they matter
    (``dataclasses.replace``).
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
    """Tell the native code the tensor class. With a capsule, read tensors through the compiled checks."""
    quiet = torch_compat.DisableTorchFunction
    native.use_tensors(torch_compat.TensorBase, torch_compat.dispatch_keys, quiet, capsule)


if native.AVAILABLE:
    prepare_tensors()
    native.use_literals(tuple(TORCH_LITERALS))
    native.use_profiler(vars(torch.autograd.profiler))
