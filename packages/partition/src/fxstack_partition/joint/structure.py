"""Compare arguments of nodes: values that are equal only if the arguments are."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch.fx import Node


def structure(value: object, known_as: Callable[[Node], object]) -> object:
    """Return a value that is equal for equal arguments only. Types count, and so do signs of zeros.

    ``known_as`` gives the identity of nodes.
    """
    if isinstance(value, Node):
        return Node, known_as(value)
    if isinstance(value, tuple | list):
        return type(value), tuple(structure(item, known_as) for item in value)
    if isinstance(value, dict):
        return dict, tuple((key, structure(value[key], known_as)) for key in sorted(value))
    if isinstance(value, slice):
        return slice, structure((value.start, value.stop, value.step), known_as)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return type(value), value.node.expr
    if isinstance(value, float):
        return float, value.hex()
    # An unhashable object is equal to itself alone.
    return type(value), value if isinstance(value, Hashable) else id(value)
