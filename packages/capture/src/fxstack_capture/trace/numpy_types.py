"""NumPy's types that tensors can hold, and NumPy's constants."""

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
"""Maps each NumPy dtype in native byte order to the tensor dtype that ``torch.from_numpy`` returns."""

NUMPY_OF: dict[torch.dtype, np.dtype] = {theirs: ours for ours, theirs in TORCH_OF.items()}
"""The inverse of ``TORCH_OF``."""

SCALAR_TYPES: frozenset[type] = frozenset(dtype.type for dtype in TORCH_OF)
"""Scalar classes whose instances are determined by their Python number and their dtype."""

NUMBERS: frozenset[type] = SCALAR_TYPES - {np.bool_, np.complex64}
"""Scalar classes that torch accepts as numbers.

Two classes are not among them: torch accepts ``np.bool_`` only in place of a float, and reads only the real
part of an ``np.complex64``.
"""

DTYPE_CLASSES: frozenset[type] = frozenset(map(type, TORCH_OF))
"""Classes of dtype objects. Each class has one instance in native byte order."""

CONSTANT_TYPES: frozenset[type] = SCALAR_TYPES | DTYPE_CLASSES
"""Types of NumPy objects that are constants of a trace."""


def is_dtype_like(value: object) -> bool:
    """Whether ``value``, a class or a dtype object, names a dtype that tensors can have, such as
    ``np.float32``.

    NumPy functions get such an argument as a constant.
    """
    if isinstance(value, np.dtype):
        return value in TORCH_OF
    return isinstance(value, type) and (value in SCALAR_TYPES or value in (bool, int, float, complex))
