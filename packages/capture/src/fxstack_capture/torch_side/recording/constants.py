"""Values that a graph holds as constants: immutable values that torch.fx can print as code."""

from __future__ import annotations

import enum

import torch

from fxstack_capture import torch_compat
from fxstack_interchange.format.literals import LITERAL_TYPES


def is_constant(value: object) -> bool:
    """Return whether a graph argument may hold ``value`` as a constant leaf."""
    return type(value) in LITERAL_TYPES or isinstance(value, (enum.Enum, torch_compat.SDPBackend))


def is_plain(value: object) -> bool:
    """Return whether ``value`` is data without tensors, which the program may get itself.

    True for constants, symbolic numbers, ``torch.finfo`` and ``torch.iinfo``, and for tuples and lists of these.
    """
    if is_constant(value) or isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    if isinstance(value, (tuple, list)):
        return all(is_plain(item) for item in value)
    return isinstance(value, (torch.finfo, torch.iinfo))
