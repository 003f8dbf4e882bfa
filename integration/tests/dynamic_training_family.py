"""Operators and modules of torch's databases in training, compiled for symbolic sizes and called with several batch sizes.

``differences`` compares values, gradients, buffers and the default generator's state with eager.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from database_calls import (
    MODULES,
    OPERATORS,
    Program,
    Tensors,
    difference,
    module_programs,
    operator_programs,
)

SAMPLES = 6
TOLERANCE = {torch.float32: 2e-5, torch.complex64: 2e-5}


def cases() -> list[tuple[str, str, bool | None]]:
    """``(operator or module, which, dynamic)``; with None sizes are symbolic from the second call on."""
    operators = [(name, "operator", dynamic) for name in OPERATORS for dynamic in (True, None)]
    return operators + [(name, "module", dynamic) for name in MODULES for dynamic in (True, None)]


def differences(name: str, which: str, dynamic: bool | None, backend: str = "aot_eager") -> str | None:
    """Return what differs from eager in the first samples, None if nothing does."""
    for number, program in enumerate(_programs(name, which)):
        (first,) = program.inputs
        batches = _batches(program, first)
        if batches is None:
            continue
        found = difference(
            Program(program.build, batches),
            lambda t: TOLERANCE.get(t.dtype, 1e-9),
            backend=backend,
            dynamic=dynamic,
        )
        if found is not None:
            return f"{found}, sample {number} {[tuple(t.shape) for t in first]}"
    return None


def _programs(name: str, which: str) -> Iterator[Program]:
    if which == "module":
        return module_programs(name, SAMPLES)
    return operator_programs(name, "function", torch.float32, SAMPLES, trains=True)


def _batches(program: Program, first: Tensors) -> tuple[Tensors, ...] | None:
    """The inputs of three batch sizes, None if eager accepts no other size."""
    for grown in (_of_size, _first_only, _of_any_dimension):
        try:
            sets = [grown(first, more) for more in (1, 3)]
            for inputs in sets:
                program.build()[0](*inputs)
        except Exception:
            continue
        return (first, *sets)
    return None


def _of_size(tensors: Tensors, more: int) -> Tensors:
    """Every tensor whose first dimension is the first tensor's gets ``more`` rows."""
    rows = tensors[0].shape[0]
    return [_longer(t, 0, more) if t.dim() and t.shape[0] == rows else t for t in tensors]


def _first_only(tensors: Tensors, more: int) -> Tensors:
    return [_longer(tensors[0], 0, more), *tensors[1:]]


def _of_any_dimension(tensors: Tensors, more: int) -> Tensors:
    """Square matrices and products: every dimension of the size of the first one."""
    rows, made = tensors[0].shape[0], []
    for tensor in tensors:
        grown = tensor
        for dim in range(tensor.dim()):
            grown = _longer(grown, dim, more) if tensor.shape[dim] == rows else grown
        made.append(grown)
    return made


def _longer(tensor: torch.Tensor, dim: int, more: int) -> torch.Tensor:
    if tensor.shape[dim] < 2:  # sizes 0 and 1 are no symbols
        raise ValueError("a size that is not symbolic")
    rows = torch.arange(tensor.shape[dim] + more) % tensor.shape[dim]
    return tensor.detach().index_select(dim, rows).requires_grad_(tensor.requires_grad)
