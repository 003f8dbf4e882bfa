"""The types of immutable values that may occur in a graph without an encoding."""

from __future__ import annotations

import torch

PYTHON_LITERALS: frozenset[type] = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type(Ellipsis)}
)
"""Types of values that Python source code can express."""

TORCH_LITERALS: frozenset[type] = frozenset(
    {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme}
)
"""Types of values whose torch repr is an expression that makes the value."""

LITERAL_TYPES: frozenset[type] = PYTHON_LITERALS | TORCH_LITERALS
"""Exact types of the leaves of a node's arguments. Nodes and enumeration members are also leaves."""
