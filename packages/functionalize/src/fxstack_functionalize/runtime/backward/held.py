"""The saved tensors of a graph with several results: each backward frees its own part.

Autograd would check all saved tensors of a compiled graph's node, and free all of them after one run. Eager
does so for the nodes that a result reaches. So this package keeps the tensors, with the versions of those
that other code can see. A backward checks the tensors that it reads, and frees the tensors that no other
result needs (``fxstack_functionalize.sequential_backward``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from typing import Any

import torch

from fxstack_functionalize.errors import SAVED_ARE_FREED, saved_changed
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.runtime.backward.replay import NOTHING_KEPT
from fxstack_functionalize.runtime.backward.saved import KEEPS_GRAPH, KeptTensor
from fxstack_functionalize.runtime.generated_source import Source
from fxstack_functionalize.runtime.plan import TrainingPlan

# Limits: eager raises for each changed saved tensor. A compiled graph raises only for tensors that its
# backward reads. Version numbers in the message are those of the compiled code.


class Held:
    """The saved tensors of one call. ``watched``: for some places the tensor whose version shows changes."""

    __slots__ = ("done", "inputs", "spent", "tensors", "versions", "watched")

    def __init__(self, tensors: list[Any], watched: dict[int, torch.Tensor]) -> None:
        self.tensors = tensors
        if any(map(torch.is_inference, watched.values())):  # they have no version
            watched = {position: tensor for position, tensor in watched.items() if not tensor.is_inference()}
        self.watched = watched
        self.versions = {position: tensor._version for position, tensor in watched.items()}
        self.done: frozenset[int] = frozenset()
        """The atoms (see ``Runs.atoms``) that have run."""
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

    def __init__(self, info: GraphInfo, plan: TrainingPlan) -> None:
        self._positions = info.differentiable
        self._atoms = {
            position: frozenset(number for number, group in enumerate(info.sequential) if position in group)
            for position in info.differentiable
        }
        self._needs = plan.needs
        # A program asks for few sets of results, in every call the same.
        self._atoms_without: dict[tuple[bool, ...], frozenset[int]] = {}
        self._unused_after: dict[frozenset[int], tuple[tuple[int, ...], bool]] = {}
        """For sets of atoms the unused saved tensors, and whether all results have run."""

    def take(self, held: Held, missing: tuple[bool, ...], needed: Collection[int] | None) -> list[Any]:
        """Start a backward. Return the saved tensors that its arguments ``needed`` are, and None for others.

        ``needed``: None for all arguments.

        Raises:
            RuntimeError: if an earlier backward freed one of them, or one was changed in place.
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
        """Free the saved tensors that no result needs whose backward can still run."""
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
    """Add the statements that keep saved tensors.

    Results are detached: with history a result would keep itself alive. Inputs are kept as they are: the
    graph may run again on them.
    """
    tensors = (_detached(saved.expression) if saved.by_autograd else saved.expression for saved in plan)
    source.add(f"held = [{', '.join(tensors)}]")
    watched = []
    for position, saved in enumerate(plan):
        if saved.guard:
            watched.append(f"{position}: {_detached(saved.guard)}")
        elif saved.by_autograd:  # what is kept shares its version
            watched.append(f"{position}: held[{position}]")
    source.add(f"ctx.held = Held(held, {{{', '.join(watched)}}})", Held=Held)


def _detached(expression: str) -> str:
    return expression if expression.startswith("args[") else f"{expression}.detach()"
