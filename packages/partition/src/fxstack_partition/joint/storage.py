"""The storages that each node allocates and reads.

A view shares the storage of its base; each result of a node has its own storage.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Node

from fxstack_partition.joint.cost import SizeModel
from fxstack_partition.joint.ops import is_view, written_arguments


class StorageTable:
    """The storages of a graph's nodes, numbered in the order of allocation.

    ``sizes``: the bytes of each storage. ``allocated``: the storages that a node allocates. ``occupied``: the
    storages in which a node's value lies.
    """

    def __init__(self, sizes: SizeModel) -> None:
        self.sizes: list[int] = []
        self.allocated: dict[Node, tuple[int, ...]] = {}
        self.occupied: dict[Node, tuple[int, ...]] = {}
        self._parts: dict[Node, Any] = {}
        self._model = sizes

    def add(self, node: Node) -> None:
        """Add a node after its arguments."""
        before = len(self.sizes)
        if node.target is operator.getitem:
            parts = self._element(node)
        else:
            shared = _shared_argument(node)
            has_storage = shared is not None and shared in self.occupied
            parts = (
                self.occupied[shared]
                if shared is not None and has_storage
                else self._new(node.meta.get("val"))
            )
        self._parts[node] = parts
        self.allocated[node] = tuple(range(before, len(self.sizes)))
        self.occupied[node] = (parts,) if isinstance(parts, int) else tuple(dict.fromkeys(_flat(parts)))

    def alias(self, node: Node, storages: Iterable[int]) -> None:
        """Add a node whose value lies in existing storages, such as a backward's saved input."""
        self._parts[node] = self.occupied[node] = tuple(storages)
        self.allocated[node] = ()

    def reads(self, node: Node) -> tuple[int, ...]:
        """Return the storages that ``node`` reads."""
        occupied = self.occupied
        return tuple(dict.fromkeys(s for arg in node.all_input_nodes for s in occupied.get(arg, ())))

    def _new(self, value: object) -> Any:
        """Allocate a storage for each tensor in ``value``. Return their indices in the nesting of ``value``."""
        if isinstance(value, torch.Tensor):
            self.sizes.append(self._model.tensor_bytes(value))
            return len(self.sizes) - 1
        if isinstance(value, tuple | list):
            return tuple(self._new(item) for item in value)
        return ()

    def _element(self, node: Node) -> Any:
        """Return the storages of a ``getitem`` node: of the selected result, or of the whole argument if it
        is no tuple of results.
        """
        base, index = node.args[0], node.args[1]
        if not isinstance(base, Node) or base not in self._parts:
            return self._new(node.meta.get("val"))
        parts = self._parts[base]
        is_split = isinstance(base.meta.get("val"), tuple | list) and not is_view(base)
        if is_split and isinstance(index, int) and isinstance(parts, tuple):
            return parts[index]
        return self.occupied[base]


def _shared_argument(node: Node) -> Node | None:
    """Return the argument whose storage the result has: the base of a view, the target of an in-place update."""
    written = written_arguments(node) if _returns_one(node) else ()
    base = node.args[0] if is_view(node) and node.args else (written or (None,))[0]
    return base if isinstance(base, Node) else None


def _returns_one(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _flat(parts: Any) -> Iterable[int]:
    """Yield the storages in the nested result of ``_new``."""
    if isinstance(parts, int):
        yield parts
    else:
        for part in parts:
            yield from _flat(part)
