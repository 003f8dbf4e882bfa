"""A joint graph as numbers: nodes by position, with arguments, readers and memory in plain lists.

A search for a good partition plans, orders and simulates dozens of choices. On FX nodes this would take most
of its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from fxstack_partition.joint.cost import SizeModel
from fxstack_partition.joint.narrow import narrow_dtype
from fxstack_partition.joint.ops import NEVER_TWICE, OpKind, is_symbolic_value, written_arguments
from fxstack_partition.joint.record import DissectedGraph, alias_root, storages
from fxstack_partition.joint.rng_replay import STATE_BYTES, can_be_redrawn
from fxstack_partition.options import PartitionOptions

_USUAL = PartitionOptions()

_SEEN = (OpKind.RANDOM, OpKind.EFFECT)
"""Kinds that run in the backward even if no gradient needs them."""


@dataclass(frozen=True, slots=True)
class SizeOf:
    """A symbol that is no node's value: the forward reads it from an input's shape."""

    primal: Node
    dimension: int
    value: torch.SymInt


class Memory(NamedTuple):
    """For each node of a stage the storages that it makes, and the storages that it makes or reads."""

    made: Sequence[tuple[int, ...]]
    touched: Sequence[tuple[int, ...]]


class Compact:
    """``facts`` as numbers: node ``i`` is ``nodes[i]``. Storages are numbered as in ``facts.storages``.

    ``args`` and ``users``: numbers of nodes. ``args_backwards``: the arguments in reverse. ``made`` and
    ``of``: the storages that a node allocates and occupies. ``made_bytes``: the bytes that it allocates.
    ``touched``: non-empty storages that it makes or reads. ``sizes``: the bytes of each storage, under
    ``options``. ``shields`` maps values that lie in memory which changes before the backward to the storages
    of copies of this memory. ``narrowed`` maps values that are saved in a smaller dtype to the storages of
    their copies. ``states`` maps random nodes that may be drawn again to the storages of the generator's
    state.
    """

    def __init__(self, facts: DissectedGraph, options: PartitionOptions) -> None:
        nodes = facts.nodes[:-1]
        self.facts = facts
        self.nodes = nodes
        self.count = len(nodes)
        position = facts.position
        self.args = [tuple([position[arg] for arg in facts.inputs[node]]) for node in nodes]
        self.args_backwards = [args[::-1] for args in self.args]
        readers: list[list[int]] = [[] for _ in nodes]
        for place, args in enumerate(self.args):
            for arg in args:
                readers[arg].append(place)
        self.users = [tuple(users) for users in readers]
        self.value_bytes = SizeModel(facts.graph, options).value_bytes
        usual = (options.worst_case, options.unbacked_hint) == (False, _USUAL.unbacked_hint)
        table = facts.storages if usual else storages(facts, options)
        self.sizes = list(table.sizes)
        self.shields = self._shields(self.sizes)
        self.states = self._states() if options.redraw else {}
        self.made = [table.made[node] for node in nodes]
        self.of = [table.of[node] for node in nodes]
        self.touched = self._touched()
        self.made_bytes = [sum(self.sizes[s] for s in made) for made in self.made]
        self.backward = bytes(node in facts.backward for node in nodes)
        self.forward = bytes(node in facts.forward for node in nodes)
        self.narrowed = self._narrowed() if options.narrow else {}

    def places(self, nodes: Iterable[object]) -> tuple[int, ...]:
        """Return the numbers of the nodes among these values."""
        position = self.facts.position
        return tuple([position[node] for node in nodes if isinstance(node, Node)])

    def _shields(self, sizes: list[int]) -> dict[int, int]:
        """Add a storage for a copy of what changes before the backward. Map values in it to the storage."""
        facts = self.facts
        roots = copied_values(facts)
        first = len(sizes)
        sizes += [self.value_bytes(root.meta.get("val")) for root in roots]
        storage = {root: first + index for index, root in enumerate(roots)}
        found = ((p, storage.get(alias_root(n))) for p, n in enumerate(self.nodes) if roots)
        return {place: shield for place, shield in found if shield is not None}

    def _states(self) -> dict[int, int]:
        """Add a storage for the generator's state at each forward node that may be drawn again."""
        kinds, backward = self.facts.kinds, self.facts.backward
        found = [
            place
            for place, node in enumerate(self.nodes)
            if kinds[node] is OpKind.RANDOM and node not in backward and can_be_redrawn(node, kinds[node])
        ]
        self.sizes += [STATE_BYTES] * len(found)
        return {place: len(self.sizes) - len(found) + i for i, place in enumerate(found)}

    def _narrowed(self) -> dict[int, int]:
        """Add a storage for each value that has a smaller dtype, unless the caller holds the value anyway."""
        held = self.storages_of((*self.results, *self.leaving))
        found = {}
        for place, node in enumerate(self.nodes):
            dtype = None if self.backward[place] else narrow_dtype(node)
            if dtype is not None and held.isdisjoint(self.of[place]):
                value = node.meta["val"]
                found[place] = len(self.sizes)
                self.sizes.append(self.value_bytes(value) // value.dtype.itemsize * dtype.itemsize)
        return found

    def _touched(self) -> list[tuple[int, ...]]:
        sizes, shields = self.sizes, self.shields
        filled = [tuple([s for s in storages if sizes[s]]) for storages in self.of]
        if shields:
            copied = {p: (s,) if sizes[s] else () for p, s in shields.items()}
            filled = [(*storages, *copied.get(p, ())) for p, storages in enumerate(filled)]
        found = []
        for made, args in zip(self.made, self.args, strict=True):
            touched = {storage: None for storage in made if sizes[storage]}
            for arg in args:
                for storage in filled[arg]:
                    touched[storage] = None
            found.append(tuple(touched))
        return found

    def handed_storages(self, places: Iterable[int]) -> set[int]:
        """Return the storages in which the backward gets these values: copies of memory that changes."""
        found: set[int] = set()
        for place in places:
            if place in self.narrowed:
                found.add(self.narrowed[place])
            else:
                found.update((self.shields[place],) if place in self.shields else self.of[place])
        return found

    @cached_property
    def memory(self) -> Memory:
        """Return the storages that the joint graph's nodes make and touch."""
        return Memory(self.made, self.touched)

    def storages_of(self, places: Iterable[int]) -> set[int]:
        """Return the storages that these nodes occupy."""
        return {s for place in places for s in self.of[place]}

    @cached_property
    def multiple(self) -> frozenset[int]:
        """Return the nodes with several results, which cannot be handed over as one."""
        values = (node.meta.get("val") for node in self.nodes)
        return frozenset(p for p, value in enumerate(values) if isinstance(value, tuple | list))

    @cached_property
    def elements(self) -> dict[int, tuple[int, ...]]:
        """Return for each node with several results the nodes of its elements."""
        kinds, nodes = self.facts.kinds, self.nodes
        found = ((p, [u for u in self.users[p] if kinds[nodes[u]] is OpKind.GETITEM]) for p in self.multiple)
        return {place: tuple(elements) for place, elements in found}

    @cached_property
    def maker(self) -> dict[int, int]:
        """Return the node that makes each storage."""
        return {s: place for place, made in enumerate(self.made) for s in made}

    @cached_property
    def free(self) -> frozenset[int]:
        """Return the inputs that are free for a backward: in memory anyway, and not copied."""
        primals = self.places(self.facts.primals)
        return frozenset(p for p in primals if p not in self.shields)

    @cached_property
    def gradients(self) -> tuple[int, ...]:
        """Return the nodes whose values are gradients."""
        return self.places(self.facts.gradients)

    @cached_property
    def tangents(self) -> tuple[int, ...]:
        """Return the tangents."""
        return self.places(self.facts.tangents)

    @cached_property
    def results(self) -> tuple[int, ...]:
        """Return the forward's outputs that the caller keeps."""
        return self.places(self.facts.results)

    @cached_property
    def leaving(self) -> tuple[int, ...]:
        """Return all outputs of the forward."""
        return self.places(self.facts.forward_outputs)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Return the nodes that every backward computes: gradients, and nodes with effects."""
        kinds, nodes = self.facts.kinds, self.nodes
        seen = [p for p in range(self.count) if self.backward[p] and kinds[nodes[p]] in _SEEN]
        return tuple(sorted({*self.gradients, *seen}))

    @cached_property
    def given(self) -> bytes:
        """Return for each node whether it is an input or a constant."""
        return bytes(node.op in ("placeholder", "get_attr") for node in self.nodes)

    @cached_property
    def symbols(self) -> tuple[tuple[str, ...], ...]:
        """Return for each node the symbols in its value; empty if no node has symbols."""
        found = tuple(free_symbols(node.meta.get("val")) for node in self.nodes)
        return found if any(found) else ()

    @cached_property
    def binders(self) -> tuple[dict[str, int], dict[str, SizeOf]]:
        """Return the source of each symbol (see ``symbol_sources``)."""
        return symbol_sources(self.facts)

    @cached_property
    def once(self) -> bytes:
        """Return for each node whether the backward must not recompute it."""
        kinds = self.facts.kinds
        never = (*NEVER_TWICE, OpKind.INPUT)
        return bytes(
            kinds[node] in never and place not in self.states for place, node in enumerate(self.nodes)
        )

    @cached_property
    def numbers(self) -> bytes:
        """Return for each node whether its value is a number."""
        return bytes(is_symbolic_value(node.meta.get("val")) for node in self.nodes)


def copied_values(facts: DissectedGraph) -> tuple[Node, ...]:
    """Return the inputs and outputs that reach the backward as copies.

    Inputs that the backward itself updates are handed over without a copy.
    """
    if not facts.copied:
        return ()
    updated = {
        arg
        for node in facts.backward
        if facts.kinds[node] is OpKind.EFFECT
        for arg in written_arguments(node)
    }
    return tuple(n for n in facts.nodes[:-1] if n in facts.copied and n not in updated)


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
