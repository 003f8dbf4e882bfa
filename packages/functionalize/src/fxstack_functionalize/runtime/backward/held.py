"""The saved tensors of a graph with several results: each backward frees its own part.

Autograd would check all saved tensors of a compiled graph's node, and free all of them after one run. Eager
does so for the nodes that a result reaches. So this package keeps the tensors, with the versions of those
that other code can see. A backward checks the tensors that it reads, and frees the tensors that no other
result needs (``fxstack_functionalize.sequential_backward``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from fxstack_functionalize.errors import SAVED_ARE_FREED, saved_changed
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.runtime.backward.saved import KEEPS_GRAPH, KeptTensor
from fxstack_functionalize.runtime.plan import TrainingPlan
from fxstack_functionalize.runtime.source import Source
from fxstack_functionalize.tracing.engine import version_of

# Limits: eager raises for each changed saved tensor. A compiled graph raises only for tensors that its
# backward reads. Version numbers in the message are those of the compiled code.


class Held:
    """The saved tensors of one call."""

    __slots__ = ("done", "tensors", "watched")

    def __init__(self, tensors: list[Any], watched: list[Any]) -> None:
        """``watched``: for each saved tensor the tensor whose version shows changes, or None."""
        self.tensors: list[Any] = tensors
        self.watched = [None if seen is None else (seen, version_of(seen)) for seen in watched]
        self.done: set[int] = set()
        """The atoms (see ``Runs.atoms``) that have run."""


class Holding:
    """The plan of all backwards of one graph: the saved tensors that each set of results needs."""

    def __init__(self, info: GraphInfo, plan: TrainingPlan) -> None:
        self._positions = info.differentiable
        self._atoms = {
            position: {number for number, group in enumerate(info.sequential) if position in group}
            for position in info.differentiable
        }
        self._needs = plan.needs

    def take(self, held: Held, missing: tuple[bool, ...], wanted: Collection[int] | None) -> list[Any]:
        """Start a backward. Return the saved tensors that its arguments ``wanted`` are, and None for others.

        ``wanted``: None for all arguments.

        Raises:
            RuntimeError: if an earlier backward freed one of them, or one was changed in place.
        """
        present = [p for p, gone in zip(self._positions, missing, strict=True) if not gone]
        atoms = set[int]().union(*(self._atoms[position] for position in present))
        if not atoms.isdisjoint(held.done):
            raise RuntimeError(SAVED_ARE_FREED)
        count = len(held.tensors)
        taken: list[Any] = [None] * count
        for number in range(count) if wanted is None else wanted:
            if number < count:
                taken[number] = _unchanged(held, number)
        if not KEEPS_GRAPH():
            held.done |= atoms
            self._free(held)
        return taken

    def _free(self, held: Held) -> None:
        alive = {p for p in self._positions if self._atoms[p].isdisjoint(held.done)}
        for number, positions in enumerate(self._needs):
            if alive.isdisjoint(positions):
                held.tensors[number] = held.watched[number] = None


def _unchanged(held: Held, number: int) -> torch.Tensor:
    tensor: torch.Tensor | None = held.tensors[number]
    if tensor is None:
        raise RuntimeError(SAVED_ARE_FREED)
    watched = held.watched[number]
    if watched is not None and version_of(watched[0]) != watched[1]:
        raise RuntimeError(saved_changed(*watched))
    return tensor


def add_holding(source: Source, plan: Sequence[KeptTensor]) -> None:
    """Add the statement that keeps saved tensors.

    Results are detached: with history a result would keep itself alive. Inputs are kept as they are: the
    graph may run again on them.
    """
    tensors = ", ".join(_kept(saved.expression) if saved.by_autograd else saved.expression for saved in plan)
    watched = ", ".join(
        str(_kept(saved.guard or saved.expression) if saved.guard or saved.by_autograd else None)
        for saved in plan
    )
    source.add(f"ctx.held = Held([{tensors}], [{watched}])", Held=Held)


def _kept(expression: str) -> str:
    return expression if expression.startswith("args[") else f"{expression}.detach()"
