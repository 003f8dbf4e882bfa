"""Types of constants. Constants and their items are immutable. Equal constants are interchangeable."""

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
"""The type of bound methods that know their defining class (``PyCMethod``)."""

OF_THE_INTERPRETER: Final = (
    type(sys.version_info),
    type(sys.flags),
    type(sys.float_info),
    type(sys.int_info),
    type(sys.hash_info),
)
"""Types whose instances in ``sys`` never change while the interpreter runs."""

PLAIN_TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
"""Maps the type of a symbolic number to the type that the program sees."""

_VALUE_TYPES = PYTHON_LITERALS | {type(NotImplemented)}
"""Python's literal types. A dictionary finds their instances by value."""

IMMUTABLE_TYPES: frozenset[type] = (
    _VALUE_TYPES
    | TORCH_LITERALS
    | numpy_types.CONSTANT_TYPES
    | {range, *torch_compat.PYBIND_ENUMS, *OF_THE_INTERPRETER}
)
"""Types whose instances are constants. The trace uses such an object itself, and guards compare it by value."""

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
"""Types of definitions. A definition is guarded by identity and is its own proxy."""


def is_value(key: Any) -> bool:
    """Whether dictionaries find ``key`` by its value (``"a"``, ``3``). A ``Key`` source can then name its
    item.

    Any other key is named by its position (``KeyAt``, ``ValueAt``).
    """
    cls = type(key)
    if cls is tuple or cls is frozenset:
        return all(map(is_value, key))
    # NaN is not equal to itself, so a dictionary finds NaN only by identity.
    return (cls in _VALUE_TYPES or cls in TORCH_LITERALS) and bool(key == key)  # noqa: PLR0124


def is_constant_key(key: Any) -> bool:
    """Whether a dictionary key or set member is its own proxy, so that it needs no wrapping.

    A guard compares such a key by value or by identity.
    """
    cls = type(key)
    if cls in IMMUTABLE_TYPES or cls in IDENTITY_TYPES or isinstance(key, (enum.Enum, type)):
        return True
    if cls is tuple or cls is frozenset:
        return all(map(is_constant_key, key))
    return cls is types.BuiltinFunctionType
