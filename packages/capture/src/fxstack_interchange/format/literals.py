"""The types of immutable values that may occur in a graph without an encoding."""

from __future__ import annotations

import torch

PYTHON_LITERALS: frozenset[type] = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type(Ellipsis)}
)
"""Values that Python source can hold."""

TORCH_LITERALS: frozenset[type] = frozenset(
    {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme}
)
"""Values that torch prints as the expression that makes them."""

LITERAL_TYPES: frozenset[type] = PYTHON_LITERALS | TORCH_LITERALS
"""Exact types of the leaves of a node's arguments, beside nodes and members of enumerations."""
