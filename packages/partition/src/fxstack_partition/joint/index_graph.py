"""A joint graph as lists of integers: each node is its index, with its arguments, readers and storages.

A search for a good partition plans, orders and simulates dozens of choices. Walks over FX nodes would take most
of the search's time.
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
from fxstack_partition.joint.record import JointRecord, alias_root, storages
from fxstack_partition.joint.rng_replay import STATE_BYTES, can_replay_draw
from fxstack_partition.options import PartitionOptions

_DEFAULTS = PartitionOptions()

_OBSERVABLE_KINDS = (OpKind.RANDOM, OpKind.EFFECT)
"""Kinds that run in the backward even if no gradient needs them."""


@dataclass(frozen=True, slots=True)
class SizeOf:
    """The source of a symbol that no node computes: the size of input ``primal`` in ``dimension``.

    The forward gets an extra ``sym_size`` node if the backward needs the symbol.
    """

    primal: Node
    dimension: int
    value: torch.SymInt


class Memory(NamedTuple):
    """The storages of each node of a stage: ``allocated`` by the node, and ``touched`` (allocated or read).

    A plan that saves copies changes these lists for its stages; other plans use the lists of the joint graph.
    """

    allocated: Sequence[tuple[int, ...]]
    touched: Sequence[tuple[int, ...]]


class IndexGraph:
    """A joint graph in which integers name nodes and storages. Node ``i`` is ``nodes[i]``.

    Storages have the same numbers as in ``facts.storages``. Lists indexed by node: ``args`` and ``users`` (nodes),
    ``reversed_args`` (the arguments in reverse, for depth-first walks), ``allocated`` and ``occupied`` (storages
    that the node allocates, and in which its value lies), ``allocated_bytes``, ``touched`` (storages of more than
    0 bytes that the node allocates or reads). ``sizes`` has the bytes of each storage under ``options``.

    Three dicts map a node to an extra storage, which exists only in partitions that save the node.
    ``copy_storages``: the node's memory changes before the backward, so the partition saves a copy.
    ``narrow_storages``: the partition saves the value in a smaller dtype. ``state_storages``: the partition saves
    the generator's state in place of random numbers.
    """

    def __init__(self, facts: JointRecord, options: PartitionOptions) -> None:
        nodes = facts.nodes[:-1]
        self.facts = facts
        self.nodes = nodes
        self.count = len(nodes)
        position = facts.position
        self.args = [tuple([position[arg] for arg in facts.inputs[node]]) for node in nodes]
        self.reversed_args = [args[::-1] for args in self.args]
        readers: list[list[int]] = [[] for _ in nodes]
        for index, args in enumerate(self.args):
            for arg in args:
                readers[arg].append(index)
        self.users = [tuple(users) for users in readers]
        self.value_bytes = SizeModel(facts.graph, options).value_bytes
        # Only these two options change sizes; ``facts.storages`` has their defaults.
        usual = (options.worst_case, options.unbacked_hint) == (False, _DEFAULTS.unbacked_hint)
        table = facts.storages if usual else storages(facts, options)
        self.sizes = list(table.sizes)
        # The three tables add storages at the end of ``sizes``, so the numbers of the graph's storages stay valid.
        self.copy_storages = self._copy_storages(self.sizes)
        self.state_storages = self._state_storages() if options.redraw else {}
        self.allocated = [table.allocated[node] for node in nodes]
        self.occupied = [table.occupied[node] for node in nodes]
        self.touched = self._touched()
        self.allocated_bytes = [sum(self.sizes[s] for s in allocated) for allocated in self.allocated]
        self.backward = bytes(node in facts.backward for node in nodes)
        self.forward = bytes(node in facts.forward for node in nodes)
        self.narrow_storages = self._narrow_storages() if options.narrow else {}

    def indices(self, nodes: Iterable[object]) -> tuple[int, ...]:
        """Return the indices of the nodes among these values; constants have no index."""
        position = self.facts.position
        return tuple([position[node] for node in nodes if isinstance(node, Node)])

    def _copy_storages(self, sizes: list[int]) -> dict[int, int]:
        """Add a storage for the copy of each value that changes before the backward.

        Return the new storage of each value and of its views.
        """
        facts = self.facts
        roots = copied_values(facts)
        first = len(sizes)
        sizes += [self.value_bytes(root.meta.get("val")) for root in roots]
        storage = {root: first + offset for offset, root in enumerate(roots)}
        copies = ((p, storage.get(alias_root(n))) for p, n in enumerate(self.nodes) if roots)
        return {index: copy for index, copy in copies if copy is not None}

    def _state_storages(self) -> dict[int, int]:
        """Add a storage for the generator's state at each forward node whose random draw can be replayed."""
        kinds, backward = self.facts.kinds, self.facts.backward
        draws = [
            index
            for index, node in enumerate(self.nodes)
            if kinds[node] is OpKind.RANDOM and node not in backward and can_replay_draw(node, kinds[node])
        ]
        self.sizes += [STATE_BYTES] * len(draws)
        return {index: len(self.sizes) - len(draws) + i for i, index in enumerate(draws)}

    def _narrow_storages(self) -> dict[int, int]:
        """Add a storage for the narrow copy of each value that a smaller dtype holds exactly.

        A forward output gets no narrow copy: its memory is alive in the backward anyway.
        """
        held = self.storages_of((*self.results, *self.forward_outputs))
        storages = {}
        for index, node in enumerate(self.nodes):
            dtype = None if self.backward[index] else narrow_dtype(node)
            if dtype is not None and held.isdisjoint(self.occupied[index]):
                value = node.meta["val"]
                storages[index] = len(self.sizes)
                self.sizes.append(self.value_bytes(value) // value.dtype.itemsize * dtype.itemsize)
        return storages

    def _touched(self) -> list[tuple[int, ...]]:
        """Return for each node the storages that it allocates or reads.

        Only these can change the live bytes. Storages of 0 bytes are left out.
        """
        sizes, copy_storages = self.sizes, self.copy_storages
        # Storages of 0 bytes (inputs) never change the live bytes.
        filled = [tuple([s for s in storages if sizes[s]]) for storages in self.occupied]
        if copy_storages:
            copied = {p: (s,) if sizes[s] else () for p, s in copy_storages.items()}
            filled = [(*storages, *copied.get(p, ())) for p, storages in enumerate(filled)]
        touched_storages = []
        for allocated, args in zip(self.allocated, self.args, strict=True):
            touched = {storage: None for storage in allocated if sizes[storage]}
            for arg in args:
                for storage in filled[arg]:
                    touched[storage] = None
            touched_storages.append(tuple(touched))
        return touched_storages

    def saved_storages(self, indices: Iterable[int]) -> set[int]:
        """Return the storages that stay alive if these values are saved.

        A value is saved as its narrow copy, else as its copy, else in its own storages.
        """
        storages: set[int] = set()
        for index in indices:
            if index in self.narrow_storages:
                storages.add(self.narrow_storages[index])
            else:
                storages.update(
                    (self.copy_storages[index],) if index in self.copy_storages else self.occupied[index]
                )
        return storages

    @cached_property
    def memory(self) -> Memory:
        """Return the storages of the joint graph's nodes, for plans without copies."""
        return Memory(self.allocated, self.touched)

    def storages_of(self, indices: Iterable[int]) -> set[int]:
        """Return the storages that these nodes occupy."""
        return {s for index in indices for s in self.occupied[index]}

    @cached_property
    def multi_output(self) -> frozenset[int]:
        """Return the nodes with several results. A partition saves the elements, not the node."""
        values = (node.meta.get("val") for node in self.nodes)
        return frozenset(p for p, value in enumerate(values) if isinstance(value, tuple | list))

    @cached_property
    def elements(self) -> dict[int, tuple[int, ...]]:
        """Map each node with several results to the ``getitem`` nodes of its results."""
        kinds, nodes = self.facts.kinds, self.nodes
        pairs = (
            (p, [u for u in self.users[p] if kinds[nodes[u]] is OpKind.GETITEM]) for p in self.multi_output
        )
        return {index: tuple(elements) for index, elements in pairs}

    @cached_property
    def allocator(self) -> dict[int, int]:
        """Map each storage to the node that allocates the storage."""
        return {s: index for index, allocated in enumerate(self.allocated) for s in allocated}

    @cached_property
    def free_inputs(self) -> frozenset[int]:
        """Return the inputs that cost nothing to save: they stay in memory anyway and need no copy."""
        primals = self.indices(self.facts.primals)
        return frozenset(p for p in primals if p not in self.copy_storages)

    @cached_property
    def gradients(self) -> tuple[int, ...]:
        return self.indices(self.facts.gradients)

    @cached_property
    def tangents(self) -> tuple[int, ...]:
        return self.indices(self.facts.tangents)

    @cached_property
    def results(self) -> tuple[int, ...]:
        """Return the forward's outputs that the caller keeps."""
        return self.indices(self.facts.results)

    @cached_property
    def forward_outputs(self) -> tuple[int, ...]:
        """Return all outputs of the forward, including new values of mutated inputs."""
        return self.indices(self.facts.forward_outputs)

    @cached_property
    def backward_roots(self) -> tuple[int, ...]:
        """Return the nodes that every backward runs: gradients, and the backward's random draws and side effects."""
        kinds, nodes = self.facts.kinds, self.nodes
        observable = [
            p for p in range(self.count) if self.backward[p] and kinds[nodes[p]] in _OBSERVABLE_KINDS
        ]
        return tuple(sorted({*self.gradients, *observable}))

    @cached_property
    def is_input(self) -> bytes:
        """Return 1 for each node that is an input or a constant, else 0."""
        return bytes(node.op in ("placeholder", "get_attr") for node in self.nodes)

    @cached_property
    def symbols(self) -> tuple[tuple[str, ...], ...]:
        """Return for each node the names of the symbols in its value.

        Return an empty tuple if the graph has no symbols.
        """
        names = tuple(free_symbols(node.meta.get("val")) for node in self.nodes)
        return names if any(names) else ()

    @cached_property
    def binders(self) -> tuple[dict[str, int], dict[str, SizeOf]]:
        """Return two maps by the name of a symbol (``symbol_sources``).

        The first map has the index of a node whose value is the symbol. The second map has an input and the
        dimension whose size is the symbol. A symbol may be missing in either map.
        """
        return symbol_sources(self.facts)

    @cached_property
    def runs_once(self) -> bytes:
        """Return 1 for each node that the backward must not recompute, else 0.

        An input is 1, because only the forward gets it. A draw that can be replayed is 0.
        """
        kinds = self.facts.kinds
        never = (*NEVER_TWICE, OpKind.INPUT)
        return bytes(
            kinds[node] in never and index not in self.state_storages for index, node in enumerate(self.nodes)
        )

    @cached_property
    def is_scalar(self) -> bytes:
        """Return 1 for each node whose value is a number, not a tensor, else 0."""
        return bytes(is_symbolic_value(node.meta.get("val")) for node in self.nodes)


def copied_values(facts: JointRecord) -> tuple[Node, ...]:
    """Return the inputs and outputs that a partition must copy in order to save them.

    An input that the backward itself updates is saved without a copy, because the update must reach the input.
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


def symbol_sources(facts: JointRecord) -> tuple[dict[str, int], dict[str, SizeOf]]:
    """Return two maps by symbol name: to a node with this value, and to a size of an input.

    The forward reads symbols there.
    """
    binders: dict[str, int] = {}
    for index, node in enumerate(facts.nodes[:-1]):
        value = node.meta.get("val")
        if node not in facts.backward and _is_symbol(value):
            binders.setdefault(str(value.node.expr), index)
    sizes: dict[str, SizeOf] = {}
    for node in facts.primals:
        value = node.meta.get("val")
        for dimension, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if _is_symbol(size):
                sizes.setdefault(str(size.node.expr), SizeOf(node, dimension, size))
    return binders, sizes


def _is_symbol(value: object) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat) and bool(value.node.expr.is_Symbol)
