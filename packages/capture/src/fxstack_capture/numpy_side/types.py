"""NumPy's types that tensors can hold, and the constants among NumPy's objects."""

from __future__ import annotations

import numpy as np
import torch

TORCH_OF: dict[np.dtype, torch.dtype] = {
    np.dtype(name): getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
"""Dtypes in native byte order, by the tensor dtype that ``torch.from_numpy`` gives."""

NUMPY_OF: dict[torch.dtype, np.dtype] = {theirs: ours for ours, theirs in TORCH_OF.items()}

SCALAR_TYPES: frozenset[type] = frozenset(dtype.type for dtype in TORCH_OF)
"""Classes of scalars that are as good as the Python number that they hold, and their dtype."""

NUMBERS: frozenset[type] = SCALAR_TYPES - {np.bool_, np.complex64}
"""Classes of scalars that torch takes for their number where it wants one. It takes a bool for a float, and a complex64 for
its real part, and refuses them elsewhere."""

DTYPE_CLASSES: frozenset[type] = frozenset(map(type, TORCH_OF))
"""Classes of dtype objects; each has one instance in native byte order."""

CONSTANT_TYPES: frozenset[type] = SCALAR_TYPES | DTYPE_CLASSES


def is_dtype_like(value: object) -> bool:
    """Whether a class or dtype object names a dtype that tensors can hold."""
    if isinstance(value, np.dtype):
        return value in TORCH_OF
    return isinstance(value, type) and (value in SCALAR_TYPES or value in (bool, int, float, complex))
