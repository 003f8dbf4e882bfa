"""Values that may stand in a graph as they are: immutable, and printable as code by torch.fx."""

from __future__ import annotations

import enum

import torch

CONSTANT_TYPES: frozenset[type] = frozenset(
    {
        int,
        float,
        complex,
        bool,
        str,
        bytes,
        type(None),
        type(Ellipsis),
        torch.dtype,
        torch.device,
        torch.layout,
        torch.memory_format,
        torch.qscheme,
    }
)


def is_constant(value: object) -> bool:
    """Whether ``value`` is one of the leaves that a graph argument may hold."""
    return type(value) in CONSTANT_TYPES or isinstance(value, (enum.Enum, torch._C._SDPBackend))


def is_plain(value: object) -> bool:
    """Whether ``value`` holds no tensor and may be handed to the program as it is."""
    if is_constant(value) or isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    if isinstance(value, (tuple, list)):
        return all(is_plain(item) for item in value)
    return isinstance(value, (torch.finfo, torch.iinfo))
