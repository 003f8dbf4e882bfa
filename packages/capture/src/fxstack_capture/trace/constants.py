"""Types of constants. Constants are immutable, with immutable items. Equal constants are interchangeable."""

from __future__ import annotations

import enum
import re
import sys
import types
from typing import Any, Final

import torch

from fxstack_capture import torch_compat
from fxstack_capture.trace import numpy_types
from fxstack_interchange.format.literals import PYTHON_LITERALS, TORCH_LITERALS

BUILTIN_METHOD: type = type(re.compile("").sub)
"""The type of bound methods of C types that know their defining class (``PyCMethod``)."""

OF_THE_INTERPRETER: Final = (
    type(sys.version_info),
    type(sys.flags),
    type(sys.float_info),
    type(sys.int_info),
    type(sys.hash_info),
)
"""Types whose instances in ``sys`` never change while the interpreter runs."""

PLAIN_TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
"""Maps each type of symbolic number to the type that the program sees."""

_VALUE_TYPES = PYTHON_LITERALS | {type(NotImplemented)}
"""Python's literal types, whose instances a dictionary finds by value."""

IMMUTABLE_TYPES: frozenset[type] = (
    _VALUE_TYPES
    | TORCH_LITERALS
    | numpy_types.CONSTANT_TYPES
    | {range, *torch_compat.PYBIND_ENUMS, *OF_THE_INTERPRETER}
)
"""Types whose instances are constants: the trace uses the objects themselves and compares them by value."""

DESCRIPTOR_TYPES: frozenset[type] = frozenset(
    {
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
    }
)
"""Types of the descriptors of classes that are written in C."""

IDENTITY_TYPES: frozenset[type] = DESCRIPTOR_TYPES | {
    types.FunctionType,
    types.CodeType,
    types.ModuleType,
    type,
}
"""Types of definitions, whose instances are guarded by identity and are their own proxies."""


def is_value(key: Any) -> bool:
    """Whether dictionaries find ``key`` by its value (``"a"``, ``3``), so that a ``Key`` source can name its item.

    Another key is named by its position (``KeyAt``, ``ValueAt``).
    """
    cls = type(key)
    if cls is tuple or cls is frozenset:
        return all(map(is_value, key))
    # NaN is not equal to itself, so a dictionary finds NaN by identity only.
    return (cls in _VALUE_TYPES or cls in TORCH_LITERALS) and bool(key == key)  # noqa: PLR0124


def is_constant_key(key: Any) -> bool:
    """Whether a dictionary key or set member is its own proxy and needs no wrapping.

    A guard compares it by value or by identity.
    """
    cls = type(key)
    if cls in IMMUTABLE_TYPES or cls in IDENTITY_TYPES or isinstance(key, (enum.Enum, type)):
        return True
    if cls is tuple or cls is frozenset:
        return all(map(is_constant_key, key))
    return cls is types.BuiltinFunctionType
