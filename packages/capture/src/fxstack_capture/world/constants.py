"""Which values are constants: immutable all the way down, equal means interchangeable."""

from __future__ import annotations

import enum
import re
import types

import torch

BUILTIN_METHOD: type = type(re.compile("").sub)
"""Bound methods of C types defined with their class (``PyCMethod``)."""

PLAIN_TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
"""Symbolic numbers, and what they are for the program."""

IMMUTABLE_TYPES: frozenset[type] = frozenset(
    {
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        type(None),
        type(Ellipsis),
        type(NotImplemented),
        range,
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        torch._C._SDPBackend,
    }
)

IDENTITY_TYPES: frozenset[type] = frozenset(
    {
        types.FunctionType,
        types.CodeType,
        types.ModuleType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        type,
    }
)


_VALUE_TYPES = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented)}
)


def is_value(key: object) -> bool:
    """Found again by value: what a ``Key`` source and an ``Equals`` check can hold."""
    cls = type(key)
    if cls is tuple or cls is frozenset:
        return all(map(is_value, key))  # type: ignore[call-overload]
    return cls in _VALUE_TYPES


def is_constant_key(key: object) -> bool:
    """A dictionary key that means the same inside of the trace and outside: compared by value or by
    identity.
    """
    cls = type(key)
    if cls in IMMUTABLE_TYPES or cls in IDENTITY_TYPES or isinstance(key, (enum.Enum, type)):
        return True
    if cls is tuple or cls is frozenset:
        return all(map(is_constant_key, key))  # type: ignore[call-overload]
    return cls is types.BuiltinFunctionType
