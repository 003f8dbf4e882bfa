"""The tensors that a forward saves for its backward, kept as in eager.

If a saved tensor is an input or output of the graph, autograd saves it. If a saved tensor is a view of an
input or output, autograd saves this input or output as well. So an in-place change before the backward raises
as in eager, instead of giving a wrong gradient. Two kinds of tensors are saved as copies: an input that the
graph itself changes, and an input or output that eager does not save. No other code can see the remaining
saved tensors: they are in a plain list, which the backward empties at its start. The generator state for
recomputed random numbers is no activation: hooks do not see it.

If a graph has several results, each backward frees its own part. Autograd would check all saved tensors of a
compiled graph's node, and free all of them after one run. Eager checks and frees only what the result's own
nodes have saved. So this package keeps the tensors (``Held``), with the versions of tensors that other code
can see. A backward checks the tensors that it reads, and frees the tensors that no other result needs
(``sequential_backward``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum, auto
from itertools import count
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import SAVED_ARE_FREED, saved_changed
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.runtime.backward.replay import NOTHING_KEPT
from fxstack_functionalize.runtime.generated_source import Source
from fxstack_functionalize.tracer.exact_random import is_generator_state
from fxstack_interchange import Partition

# Limits: a backward may read a parameter that eager does not save (w.half()). It then raises if the parameter
# was changed. After a change through .data the backward may read the value before or after the change, unlike
# eager.

Owners = dict[Any, tuple[bool, int, bool]]


class Saving(Enum):
    """The owner of the saved tensors."""

    PLAIN = auto()
    """Autograd saves tensors that other code can see and change; this package keeps the others."""
    PACKED = auto()
    """Hooks have packed the tensors: as in eager, nothing checks whether they were changed."""
    HOOKED = auto()
    """Autograd saves all tensors, and calls the active hooks."""


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A saved tensor: the expression of its value, and the expression of the input or result that owns its memory.

    The expressions use the names ``args``, ``results`` and ``flat``.
    """

    value: str
    owner: str | None = None
    is_owner: bool = False
    """Whether the tensor is the owner itself, not a view of it."""
    is_relaid: bool = False
    """Whether the graph changes the metadata of the owner."""
    is_state: bool = False
    """Whether it is the state of a generator."""

    def kept(self, saving: Saving) -> KeptTensor:
        """Return how the tensor is kept."""
        if saving is Saving.PACKED:
            return KeptTensor(f"{self.owner}.data" if self.is_owner else self.value, by_autograd=False)
        hooked = saving is Saving.HOOKED and not self.is_state
        if not self.is_owner:
            return KeptTensor(self.value, hooked, self.owner if saving is Saving.PLAIN else None)
        # The caller's tensor will have other metadata in the backward; the detached one shares its version.
        return KeptTensor(f"{self.owner}{'.detach()' if self.is_relaid else ''}", by_autograd=True)


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """The tensor that the forward keeps for a saved tensor. ``by_autograd``: whether autograd keeps it.

    ``guard``: the expression of the viewed tensor, whose version counter the backward checks.
    """

    expression: str
    """Python text in the generated forward, for example ``args[0]``."""
    by_autograd: bool
    guard: str | None = None


def saved_tensors(
    partition: Partition, info: GraphInfo, positions: range, names: Sequence[str], unsaved: Collection[str]
) -> tuple[SavedTensor, ...]:
    """Return the saved tensors, which are the forward's results at ``positions``.

    ``names``: the forward's input names in the order of the call's arguments. ``unsaved``: the names of
    inputs and outputs that eager does not save.
    """
    results: Any = partition.forward.graph_module.graph.output_node().args[0]
    owners = _memory_owners(partition, info, names, unsaved)
    return tuple(
        _describe_saved(f"flat[{position}]", results[position], info, owners) for position in positions
    )


def _describe_saved(value: str, node: object, info: GraphInfo, owners: Owners) -> SavedTensor:
    """Return the record of one saved tensor, with the input or output that owns its memory, if any."""
    if is_generator_state(node):
        return SavedTensor(value, is_state=True)
    node_key, *memory = _keys(node)
    owner_of_memory = next((owners[key] for key in (node_key, *memory) if key in owners), None)
    if owner_of_memory is None:
        return SavedTensor(value)
    of_input, index, changes = owner_of_memory
    if changes:
        return SavedTensor(f"{value}.clone()")
    relaid = of_input and bool(info.inputs[index].relayouts)
    owner = f"{'args' if of_input else 'results'}[{index}]"
    return SavedTensor(value, owner, is_owner=node_key in owners, is_relaid=relaid)


def add_saving(source: Source, plan: Sequence[KeptTensor]) -> None:
    """Add the statements that save tensors."""
    for_autograd = _for_autograd(plan)
    expressions = [saved.expression for saved in plan if not saved.by_autograd]
    if for_autograd:
        source.add(f"ctx.save_for_backward({', '.join(for_autograd)})")
    if expressions:
        source.add(f"ctx.kept = [{', '.join(expressions)}]")


def _for_autograd(plan: Sequence[KeptTensor]) -> list[str]:
    """Return the expressions of the tensors in ``ctx.saved_tensors``."""
    expressions = [saved.expression for saved in plan if saved.by_autograd]
    guards = dict.fromkeys(saved.guard for saved in plan if saved.guard is not None)
    return expressions + [guard for guard in guards if guard not in expressions]


def positions_of_saved_inputs(plan: Sequence[KeptTensor], count: int) -> dict[int, int]:
    """Return a map from the number of an argument to its position in ``ctx.saved_tensors``.

    Only arguments that are saved are in the map. ``count``: the number of arguments.
    """
    position_of = {expression: position for position, expression in enumerate(_for_autograd(plan))}
    names = {index: f"args[{index}]" for index in range(count)}
    return {index: position_of[name] for index, name in names.items() if name in position_of}


def add_reading(source: Source, plan: Sequence[KeptTensor]) -> list[str]:
    """Add the statements that read saved tensors. Return the expressions of all saved tensors in order.

    Reading ``ctx.saved_tensors`` raises autograd's error if the backward has run without ``retain_graph``. A
    backward that raised has freed only the tensors that this package keeps. Reading these raises the same
    error text.
    """
    source.add("saved = ctx.saved_tensors" if plan else "saved = ()")
    if any(not saved.by_autograd for saved in plan):
        source.add("kept = ctx.kept")
        source.add("if kept is None:")
        source.add("    raise RuntimeError(freed)", freed=SAVED_ARE_FREED)
        source.add("if not keeps_graph():", keeps_graph=KEEPS_GRAPH)
        source.add("    ctx.kept = None")
    return [
        f"{'saved' if by_autograd else 'kept'}[{position}]" for by_autograd, position in positions_of(plan)
    ]


def positions_of(plan: Sequence[KeptTensor]) -> list[tuple[bool, int]]:
    """Return for each saved tensor whether autograd keeps it, and its position in the list that holds it."""
    counters = {True: count(), False: count()}
    return [(item.by_autograd, next(counters[item.by_autograd])) for item in plan]


KEEPS_GRAPH = torch_compat.get_current_graph_task_keep_graph


def _memory_owners(
    partition: Partition, info: GraphInfo, names: Sequence[str], unsaved: Collection[str]
) -> Owners:
    """Return node or memory -> owner: (whether it is an input, its number, whether a saved tensor on it must
    be a copy).
    """
    graph = partition.forward.graph_module.graph
    results: Any = graph.output_node().args[0]
    owners: Owners = {}
    for position in range(info.output_count):
        for key in _keys(results[position]):
            owners.setdefault(key, (False, position, str(results[position]) in unsaved))
    number = {name: index for index, name in enumerate(names)}
    for node in graph.find_nodes(op="placeholder"):
        for key in _keys(node):
            index = number[node.name]
            owners[key] = (True, index, index in info.mutated or node.name in unsaved)
    return owners


def _keys(node: object) -> tuple[Any, ...]:
    """Return keys of a node: itself, and the memory of its example value."""
    if not isinstance(node, torch.fx.Node):
        return ()
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return (node,)
    return (node, value.untyped_storage()._cdata)


# Limits: eager raises for each changed saved tensor. A compiled graph raises only for tensors that its
# backward reads. The message has the version numbers of the compiled code.


class Held:
    """The saved tensors of one call. ``watched``: position -> the tensor whose version counter shows a change."""

    __slots__ = ("done", "inputs", "spent", "tensors", "versions", "watched")

    def __init__(self, tensors: list[Any], watched: dict[int, torch.Tensor]) -> None:
        self.tensors = tensors
        if any(map(torch.is_inference, watched.values())):  # inference tensors have no version
            watched = {position: tensor for position, tensor in watched.items() if not tensor.is_inference()}
        self.watched = watched
        self.versions = {position: tensor._version for position, tensor in watched.items()}
        self.done: frozenset[int] = frozenset()
        """The atoms (see ``ResultHistories.atoms``) that have run."""
        self.spent = False
        """Whether no further backward can run."""
        self.inputs: Any = NOTHING_KEPT
        """The inputs for another run of the graph (``Replay.keep``), until ``spent``."""

    def copy(self) -> Held:
        """Return a copy, from which a backward frees nothing of this object."""
        duplicate = copy(self)
        duplicate.tensors, duplicate.watched = [*self.tensors], {**self.watched}
        return duplicate


class Holding:
    """The plan of all backwards of one graph: the saved tensors that each set of results needs."""

    def __init__(self, info: GraphInfo, needs: Sequence[Sequence[int]]) -> None:
        """``needs``: see ``TrainingPlan``."""
        self._positions = info.differentiable
        self._atoms = {
            position: frozenset(number for number, group in enumerate(info.sequential) if position in group)
            for position in info.differentiable
        }
        self._needs = needs
        # A program asks for few sets of results, in every call the same.
        self._atoms_without: dict[tuple[bool, ...], frozenset[int]] = {}
        self._unused_after: dict[frozenset[int], tuple[tuple[int, ...], bool]] = {}
        """Set of atoms that have run -> (saved tensors that no remaining result needs, whether all results
        have run).
        """

    def take(self, held: Held, missing: tuple[bool, ...], needed: Collection[int] | None) -> list[Any]:
        """Start a backward. Return its saved tensors by position, and None for saved tensors that it does not need.

        ``needed``: the positions of the arguments that the backward reads; None for all arguments.

        Raises:
            RuntimeError: if an earlier backward freed a needed tensor, or the program changed a needed tensor
                in place.
        """
        atoms = self._atoms_without.get(missing)
        if atoms is None:
            atoms = self._atoms_without[missing] = self._atoms_of(missing)
        if not atoms.isdisjoint(held.done):
            raise RuntimeError(SAVED_ARE_FREED)
        tensors, watched, versions = held.tensors, held.watched, held.versions
        count = len(tensors)
        arguments: list[Any] = [None] * count
        for position in range(count) if needed is None else needed:
            if position < count:
                if tensors[position] is None:
                    raise RuntimeError(SAVED_ARE_FREED)
                watched_tensor = watched.get(position)
                if watched_tensor is not None and watched_tensor._version != versions[position]:
                    raise RuntimeError(saved_changed(watched_tensor, versions[position]))
                arguments[position] = tensors[position]
        if not KEEPS_GRAPH():
            held.done |= atoms
            self._free(held)
        return arguments

    def _atoms_of(self, missing: tuple[bool, ...]) -> frozenset[int]:
        """Return the atoms that a backward for the present gradients runs."""
        present = (p for p, is_missing in zip(self._positions, missing, strict=True) if not is_missing)
        return frozenset[int]().union(*(self._atoms[position] for position in present))

    def _free(self, held: Held) -> None:
        """Free the saved tensors that are needed by no result whose backward can still run."""
        unused = self._unused_after.get(held.done)
        if unused is None:
            alive = {p for p in self._positions if self._atoms[p].isdisjoint(held.done)}
            unneeded = (n for n, results in enumerate(self._needs) if alive.isdisjoint(results))
            unused = self._unused_after[held.done] = (tuple(unneeded), not alive)
        for position in unused[0]:
            held.tensors[position] = None
            held.watched.pop(position, None)
        if unused[1]:
            held.spent, held.inputs = True, NOTHING_KEPT


def add_holding(source: Source, plan: Sequence[KeptTensor]) -> None:
    """Add the statements that keep saved tensors in ``ctx.held``, for a graph with several results.

    Results are detached, because a result with history would keep itself alive. Inputs keep their history,
    because the graph may run again on them.
    """
    tensors = (_detached(saved.expression) if saved.by_autograd else saved.expression for saved in plan)
    source.add(f"held = [{', '.join(tensors)}]")
    watched = []
    for position, saved in enumerate(plan):
        if saved.guard:
            watched.append(f"{position}: {_detached(saved.guard)}")
        elif saved.by_autograd:  # the kept tensor shares the owner's version counter
            watched.append(f"{position}: held[{position}]")
    source.add(f"ctx.held = Held(held, {{{', '.join(watched)}}})", Held=Held)


def _detached(expression: str) -> str:
    return expression if expression.startswith("args[") else f"{expression}.detach()"
