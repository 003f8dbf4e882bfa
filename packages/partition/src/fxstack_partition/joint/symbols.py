"""The symbols in the sizes of a joint graph's values: which a value has, and where each is defined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from fxstack_partition.joint.dissected import DissectedGraph


@dataclass(frozen=True, slots=True)
class SizeOf:
    """A symbol that is no node's value: the forward reads it from an input's shape."""

    primal: Node
    dimension: int
    value: torch.SymInt


def free_symbols(value: object) -> tuple[str, ...]:
    """Return the names of the symbols in a node's value, in order of appearance."""
    if isinstance(value, torch.Tensor):
        if not value._has_symbolic_sizes_strides:
            return ()
        parts: list[Any] = [*value.shape]
        if value.layout is torch.strided:
            parts += [*value.stride(), value.storage_offset()]
        return tuple(name for part in parts for name in free_symbols(part))
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return tuple(sorted(str(symbol) for symbol in value.node.expr.free_symbols))
    if isinstance(value, tuple | list):
        return tuple(name for item in value for name in free_symbols(item))
    return ()


def symbol_sources(facts: DissectedGraph) -> tuple[dict[str, int], dict[str, SizeOf]]:
    """Return the sources of symbols: a node outside the backward with this value, or a size of an input."""
    binders: dict[str, int] = {}
    for place, node in enumerate(facts.nodes[:-1]):
        value = node.meta.get("val")
        if node not in facts.backward and _is_symbol(value):
            binders.setdefault(str(value.node.expr), place)
    sizes: dict[str, SizeOf] = {}
    for node in facts.primals:
        value = node.meta.get("val")
        for dimension, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if _is_symbol(size):
                sizes.setdefault(str(size.node.expr), SizeOf(node, dimension, size))
    return binders, sizes


def _is_symbol(value: object) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat) and bool(value.node.expr.is_Symbol)
