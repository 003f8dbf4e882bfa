"""The plan of a choice of saved values: the final saved values, and the nodes that the backward runs.

Plans use indices (see ``index_graph``) and single passes over the graph, because searches plan many choices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from torch.fx import Node

from fxstack_interchange import InputKind
from fxstack_partition.joint.index_graph import IndexGraph, Memory, SizeOf
from fxstack_partition.joint.ops import OpKind


class PartitionError(ValueError):
    """A partitioner's choice of saved values gives no valid partition. The message names the node and the rule."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of a choice of saved values.

    ``saved_values``: the values that the forward hands to the backward, in order. ``needed``: 1 for each node that
    the backward runs; of these, ``replayed`` draw random numbers again. ``narrowed``: values handed over in a
    smaller dtype; the backward first converts them back.
    """

    saved_values: tuple[int, ...]
    sizes: tuple[SizeOf, ...]
    """The sizes of inputs that the backward needs as symbols."""
    needed: bytearray
    replayed: tuple[int, ...]
    narrowed: tuple[int, ...]

    @property
    def runs(self) -> bytearray:
        """Return 1 for each node whose value the backward allocates: recomputed or converted back."""
        if not self.narrowed:
            return self.needed
        runs = bytearray(self.needed)
        for index in self.narrowed:
            runs[index] = 1
        return runs

    def saved_storages(self, graph: IndexGraph) -> set[int]:
        """Return the storages that stay alive between forward and backward because of this plan."""
        states = graph.state_storages
        return graph.saved_storages(self.saved_values) | {states[index] for index in self.replayed}

    def forward(self, graph: IndexGraph) -> bytearray:
        """Return 1 for each node that the forward runs (inputs included)."""
        return closure(graph, self.saved_values, graph.forward)

    def repeated(self, graph: IndexGraph) -> list[int]:
        """Return the nodes that both forward and backward run: the recomputation of this plan."""
        forward_nodes, backward_nodes, is_input = self.forward(graph), self.needed, graph.is_input
        return [p for p in range(graph.count) if backward_nodes[p] and forward_nodes[p] and not is_input[p]]

    def forward_memory(self, graph: IndexGraph) -> Memory:
        """Return the storages of the forward's nodes, with the narrow copies and generator states that it adds."""
        if not self.narrowed and not self.replayed:
            return graph.memory
        allocated = list(graph.allocated)
        for indices, extra in ((self.narrowed, graph.narrow_storages), (self.replayed, graph.state_storages)):
            for index in indices:
                allocated[index] = (*allocated[index], extra[index])
        return Memory(allocated, graph.touched)

    def backward_memory(self, graph: IndexGraph) -> Memory:
        """Return the storages of the backward's nodes. It allocates values that it converts back from narrow copies."""
        if not self.narrowed and not self.replayed:
            return graph.memory
        allocated, touched = list(graph.allocated), list(graph.touched)
        for index in self.narrowed:
            allocated[index] = tuple(s for s in graph.occupied[index] if graph.sizes[s])
            touched[index] = (*allocated[index], graph.narrow_storages[index])
        for index in self.replayed:
            touched[index] = (*touched[index], graph.state_storages[index])
        return Memory(allocated, touched)


def closure(graph: IndexGraph, roots: Iterable[int], marked: bytes = b"") -> bytearray:
    """Return 1 for each root, for each node that is 1 in ``marked``, and for all ancestors of these nodes."""
    marks = bytearray(marked or graph.count)
    for root in roots:
        marks[root] = 1
    args = graph.args
    # Users follow their arguments, so one pass from the end reaches all ancestors.
    for index in range(graph.count - 1, -1, -1):
        if marks[index]:
            for arg in args[index]:
                marks[arg] = 1
    return marks


def make_plan(graph: IndexGraph, saved: Iterable[int]) -> Plan:
    """Plan a choice of saved values. Drop unread values, and add symbols that sizes contain.

    Raises:
        PartitionError: if the backward would recompute a node that must not run twice, or lacks an input.
    """
    chosen = dict.fromkeys(saved)
    for index in chosen:
        _check_saved(graph, index)
    needed = backward_closure(graph, chosen)
    # An unread value is not saved; a symbol in a size must be saved.
    gradients = frozenset(graph.gradients)
    users = graph.users
    kept = sorted(p for p in chosen if p in gradients or any(needed[u] for u in users[p]))
    symbols, sizes = _symbols_to_save(graph, needed, kept) if graph.symbols else ((), ())
    for index in symbols:
        needed[index] = 0
    specs, nodes = graph.facts.input_specs, graph.nodes

    def is_number(index: int) -> bool:
        spec = specs.get(nodes[index])
        return bool(graph.is_scalar[index]) or (spec is not None and spec.kind is InputKind.SYMBOL)

    tensors = [p for p in kept if not is_number(p)]
    scalars = sorted({*symbols, *(p for p in kept if is_number(p))})
    replayed = tuple(p for p in graph.state_storages if needed[p])
    narrowed = tuple(p for p in tensors if p in graph.narrow_storages)
    return Plan((*tensors, *scalars), sizes, needed, replayed, narrowed)


def complete_plan(graph: IndexGraph, saved: Iterable[int], savable: Collection[Node]) -> Plan:
    """Plan a choice, adjusted to values that stay alive anyway. Searches call this for every choice.

    The caller keeps the forward's results alive. So the forward saves a result that the backward would
    recompute, if the result is in ``savable`` and needs no copy. A view or an element of a recomputed value
    is recomputed instead of saved.
    """
    plan = make_plan(graph, saved)
    alive = graph.storages_of(graph.results)
    while True:
        dropped = {
            index
            for index in plan.saved_values
            if any(plan.needed[graph.allocator[s]] for s in graph.occupied[index] if graph.sizes[s])
        }
        added = [
            index
            for index in range(graph.count)
            if plan.needed[index] and graph.forward[index] and graph.allocated_bytes[index]
            if alive.issuperset(graph.allocated[index]) and graph.nodes[index] in savable
            if index not in graph.copy_storages
        ]
        if not dropped and not added:
            return plan
        plan = make_plan(graph, (*added, *(index for index in plan.saved_values if index not in dropped)))


def _check_saved(graph: IndexGraph, index: int) -> None:
    """Raise PartitionError if the value at ``index`` cannot be saved: it needs a tangent, or is a tuple."""
    node = graph.nodes[index]
    if graph.backward[index]:
        msg = f"{node.name!r} cannot be saved: it depends on a tangent, so the forward lacks it"
        raise PartitionError(msg)
    if isinstance(node.meta.get("val"), tuple | list):
        msg = f"{node.name!r} cannot be saved: it has several results; save its elements"
        raise PartitionError(msg)


def backward_closure(graph: IndexGraph, saved: dict[int, None]) -> bytearray:
    """Return 1 for each node that the backward runs if the forward saves ``saved``.

    Raises:
        PartitionError: if the backward needs an input that is not saved, or would run a node that must not run twice.
    """
    needed = bytearray(graph.count)
    for root in graph.backward_roots:
        needed[root] = 1
    stops = bytearray(graph.count)
    for index in (*saved, *graph.tangents):
        stops[index] = 1
    args, backward, once = graph.args, graph.backward, graph.runs_once
    for index in range(graph.count - 1, -1, -1):
        if not needed[index]:
            continue
        if stops[index]:
            needed[index] = 0
            continue
        if once[index] and not backward[index]:
            raise PartitionError(_explain_missing(graph, index, needed))
        for arg in args[index]:
            needed[arg] = 1
    return needed


def _explain_missing(graph: IndexGraph, index: int, needed: bytearray) -> str:
    """Return the message about a node that the backward needs, but that is neither saved nor allowed to run again."""
    node, kind = graph.nodes[index], graph.facts.kinds[graph.nodes[index]]
    users = [repr(graph.nodes[u].name) for u in graph.users[index] if needed[u]]
    user = users[0] if users else "a gradient"
    if kind is OpKind.INPUT:
        return f"{node.name!r}, an input of the forward, is read by {user} in the backward: save it"
    return (
        f"{node.name!r} ({kind.value}) would run a second time in the backward, for {user}: "
        "save it or a value that is computed from it"
    )


def _symbols_to_save(
    graph: IndexGraph, needed: bytearray, saved: Sequence[int]
) -> tuple[tuple[int, ...], tuple[SizeOf, ...]]:
    """Return the sources of the symbols in the backward's sizes: nodes to save, and input sizes to read."""
    computed = (index for index in range(graph.count) if needed[index])
    names: dict[str, None] = {}
    for index in (*graph.tangents, *saved, *computed):
        names.update(dict.fromkeys(graph.symbols[index]))
    binders, sizes = graph.binders
    unbound = [sizes[name] for name in names if name not in binders and name in sizes]
    return tuple(binders[name] for name in names if name in binders), tuple(unbound)
