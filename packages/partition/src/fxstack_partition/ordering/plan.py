"""The plan of a choice of saved values: the values handed over, and the nodes that the backward runs.

Plans use numbers (see ``compact``) and single passes over the graph, because searches plan many choices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from torch.fx import Node

from fxstack_interchange import InputKind
from fxstack_partition.joint.index_graph import Compact, Memory, SizeOf
from fxstack_partition.joint.ops import OpKind


class PartitionError(ValueError):
    """A partitioner's choice of saved values cannot work. The message names the node and the rule."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of a choice of saved values.

    ``handed``: the values that the forward hands to the backward, in order. ``needed``: 1 for each node that
    the backward runs; of these, ``redrawn`` draw random numbers again. ``widened``: values handed over in a
    smaller dtype; the backward first converts them back.
    """

    handed: tuple[int, ...]
    sizes: tuple[SizeOf, ...]
    needed: bytearray
    redrawn: tuple[int, ...]
    widened: tuple[int, ...]

    @property
    def runs(self) -> bytearray:
        """Return 1 for each node whose value the backward makes."""
        if not self.widened:
            return self.needed
        runs = bytearray(self.needed)
        for place in self.widened:
            runs[place] = 1
        return runs

    def over(self, graph: Compact) -> set[int]:
        """Return the storages that the forward keeps for the backward."""
        states = graph.states
        return graph.handed_storages(self.handed) | {states[place] for place in self.redrawn}

    def forward(self, graph: Compact) -> bytearray:
        """Return 1 for each node that the forward runs (inputs included)."""
        return closure(graph, self.handed, graph.forward)

    def repeated(self, graph: Compact) -> list[int]:
        """Return the nodes that both forward and backward run, in order."""
        first, again, given = self.forward(graph), self.needed, graph.given
        return [p for p in range(graph.count) if again[p] and first[p] and not given[p]]

    def in_forward(self, graph: Compact) -> Memory:
        """Return the storages that the forward's nodes make and touch."""
        if not self.widened and not self.redrawn:
            return graph.memory
        made = list(graph.made)
        for places, extra in ((self.widened, graph.narrowed), (self.redrawn, graph.states)):
            for place in places:
                made[place] = (*made[place], extra[place])
        return Memory(made, graph.touched)

    def in_backward(self, graph: Compact) -> Memory:
        """Return the storages that the backward's nodes make and touch."""
        if not self.widened and not self.redrawn:
            return graph.memory
        made, touched = list(graph.made), list(graph.touched)
        for place in self.widened:
            made[place] = tuple(s for s in graph.of[place] if graph.sizes[s])
            touched[place] = (*made[place], graph.narrowed[place])
        for place in self.redrawn:
            touched[place] = (*touched[place], graph.states[place])
        return Memory(made, touched)


def closure(graph: Compact, roots: Iterable[int], known: bytes = b"") -> bytearray:
    """Return 1 for each of ``known``, of ``roots``, and of the nodes from which ``roots`` are computed."""
    marks = bytearray(known or graph.count)
    for root in roots:
        marks[root] = 1
    args = graph.args
    for place in range(graph.count - 1, -1, -1):
        if marks[place]:
            for arg in args[place]:
                marks[arg] = 1
    return marks


def make_plan(graph: Compact, saved: Iterable[int]) -> Plan:
    """Plan a choice of saved values. Drop unread values, and add symbols that sizes contain.

    Raises:
        PartitionError: if the backward would recompute a node that must not run twice, or lacks an input.
    """
    chosen = dict.fromkeys(saved)
    for place in chosen:
        _check_saved(graph, place)
    needed = backward_closure(graph, chosen)
    # An unread value is not saved; a symbol in a size must be saved.
    gradients = frozenset(graph.gradients)
    users = graph.users
    kept = sorted(p for p in chosen if p in gradients or any(needed[u] for u in users[p]))
    symbols, sizes = _symbols_to_save(graph, needed, kept) if graph.symbols else ((), ())
    for place in symbols:
        needed[place] = 0
    specs, nodes = graph.facts.input_specs, graph.nodes

    def is_number(place: int) -> bool:
        spec = specs.get(nodes[place])
        return bool(graph.numbers[place]) or (spec is not None and spec.kind is InputKind.SYMBOL)

    tensors = [p for p in kept if not is_number(p)]
    scalars = sorted({*symbols, *(p for p in kept if is_number(p))})
    redrawn = tuple(p for p in graph.states if needed[p])
    widened = tuple(p for p in tensors if p in graph.narrowed)
    return Plan((*tensors, *scalars), sizes, needed, redrawn, widened)


def complete_plan(graph: Compact, saved: Iterable[int], savable: Collection[Node]) -> Plan:
    """Plan a choice and use memory that is alive anyway: neither save nor recompute such values.

    The caller keeps the forward's results, so a result that would be recomputed is saved, if it is in
    ``savable`` and is saved without a copy. A view or an element of a recomputed value is not saved.
    """
    plan = make_plan(graph, saved)
    alive = graph.storages_of(graph.results)
    while True:
        again = {
            place
            for place in plan.handed
            if any(plan.needed[graph.maker[s]] for s in graph.of[place] if graph.sizes[s])
        }
        kept = [
            place
            for place in range(graph.count)
            if plan.needed[place] and graph.forward[place] and graph.made_bytes[place]
            if alive.issuperset(graph.made[place]) and graph.nodes[place] in savable
            if place not in graph.shields
        ]
        if not again and not kept:
            return plan
        plan = make_plan(graph, (*kept, *(place for place in plan.handed if place not in again)))


def _check_saved(graph: Compact, place: int) -> None:
    node = graph.nodes[place]
    if graph.backward[place]:
        msg = f"{node.name!r} cannot be saved: it depends on a tangent, so the forward lacks it"
        raise PartitionError(msg)
    if isinstance(node.meta.get("val"), tuple | list):
        msg = f"{node.name!r} cannot be saved: it has several results; save its elements"
        raise PartitionError(msg)


def backward_closure(graph: Compact, saved: dict[int, None]) -> bytearray:
    """Return 1 for each node that the backward runs if it gets ``saved``.

    Raises:
        PartitionError: if it would need an input that is not saved, or run a node that must not run twice.
    """
    needed = bytearray(graph.count)
    for root in graph.roots:
        needed[root] = 1
    stops = bytearray(graph.count)
    for place in (*saved, *graph.tangents):
        stops[place] = 1
    args, backward, once = graph.args, graph.backward, graph.once
    for place in range(graph.count - 1, -1, -1):
        if not needed[place]:
            continue
        if stops[place]:
            needed[place] = 0
            continue
        if once[place] and not backward[place]:
            raise PartitionError(_why_not(graph, place, needed))
        for arg in args[place]:
            needed[arg] = 1
    return needed


def _why_not(graph: Compact, place: int, needed: bytearray) -> str:
    node, kind = graph.nodes[place], graph.facts.kinds[graph.nodes[place]]
    users = [repr(graph.nodes[u].name) for u in graph.users[place] if needed[u]]
    user = users[0] if users else "a gradient"
    if kind is OpKind.INPUT:
        return f"{node.name!r}, an input of the forward, is read by {user} in the backward: save it"
    return (
        f"{node.name!r} ({kind.value}) would run a second time in the backward, for {user}: "
        "save it or what is computed from it"
    )


def _symbols_to_save(
    graph: Compact, needed: bytearray, saved: Sequence[int]
) -> tuple[tuple[int, ...], tuple[SizeOf, ...]]:
    """Return the sources of the symbols in the backward's sizes: nodes, and sizes to read."""
    run = (place for place in range(graph.count) if needed[place])
    wanted: dict[str, None] = {}
    for place in (*graph.tangents, *saved, *run):
        wanted.update(dict.fromkeys(graph.symbols[place]))
    binders, sizes = graph.binders
    unbound = [sizes[name] for name in wanted if name not in binders and name in sizes]
    return tuple(binders[name] for name in wanted if name in binders), tuple(unbound)
