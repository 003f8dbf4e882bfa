"""Saved tensors of results that are differentiated one after the other: each backward frees its own part.

Autograd frees all saved tensors of a compiled graph's node after one run. If eager would not
(``fxstack_functionalize.sequential_backward``), this module keeps the tensors, with the versions of those
that other code can see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fxstack_functionalize.errors import SAVED_ARE_FREED, saved_changed
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.runtime.backward.saved import KEEPS_GRAPH, SavedTensor
from fxstack_functionalize.runtime.plan import TrainingPlan
from fxstack_functionalize.runtime.source import Source
from fxstack_functionalize.tracing.engine import version_of


class Held:
    """The saved tensors of one call."""

    __slots__ = ("done", "inputs", "tensors", "watched")

    def __init__(self, tensors: list[Any], watched: list[Any], inputs: list[Any]) -> None:
        """``watched``: for each saved tensor the tensor whose version shows changes, or None.

        ``inputs``: the input that the saved tensor is, or None. A second differentiation needs it alive.
        """
        self.inputs = inputs
        self.tensors: list[Any] = tensors
        self.watched = [None if seen is None else (seen.detach(), version_of(seen)) for seen in watched]
        self.done: set[int] = set()
        """The atoms (see ``Runs.atoms``) that have run."""


class SequentialBackward:
    """The plan of sequential backwards for one graph."""

    def __init__(self, info: GraphInfo, plan: TrainingPlan) -> None:
        self._positions = info.differentiable
        self._atoms = {
            position: {number for number, group in enumerate(info.sequential) if position in group}
            for position in info.differentiable
        }
        self._needs = plan.needs

    def take(self, held: Held, missing: tuple[bool, ...], arguments: tuple[int, ...] | None) -> list[Any]:
        """Return the saved tensors that a backward with these ``arguments`` takes, and None for others.

        Raises:
            RuntimeError: if an earlier backward freed one of them, or one was changed in place.
        """
        present = [p for p, gone in zip(self._positions, missing, strict=True) if not gone]
        atoms = set[int]().union(*(self._atoms[position] for position in present))
        if not atoms.isdisjoint(held.done):
            raise RuntimeError(SAVED_ARE_FREED)
        count = len(held.tensors)
        wanted = range(count) if arguments is None else [n for n in arguments if n < count]
        taken: list[Any] = [None] * count
        for number in wanted:
            taken[number] = _unchanged(held, number)
        if not KEEPS_GRAPH():
            held.done |= atoms
            self._free(held)
        return taken

    def _free(self, held: Held) -> None:
        alive = {p for p in self._positions if self._atoms[p].isdisjoint(held.done)}
        for number, positions in enumerate(self._needs):
            if alive.isdisjoint(positions):
                held.tensors[number] = held.watched[number] = held.inputs[number] = None


def _unchanged(held: Held, number: int) -> torch.Tensor:
    tensor: torch.Tensor | None = held.tensors[number]
    if tensor is None:
        raise RuntimeError(SAVED_ARE_FREED)
    watched = held.watched[number]
    if watched is not None and version_of(watched[0]) != watched[1]:
        raise RuntimeError(saved_changed(*watched))
    return tensor


def add_holding(source: Source, plan: Sequence[SavedTensor]) -> None:
    """Add the statement that keeps saved tensors, detached: with history a result would keep itself alive."""
    tensors = ", ".join(
        f"{saved.expression}.detach()" if saved.by_autograd else saved.expression for saved in plan
    )
    watched = ", ".join(
        str(saved.guard or (saved.expression if saved.by_autograd else None)) for saved in plan
    )
    inputs = ", ".join(str(saved.expression if _is_input(saved) else None) for saved in plan)
    source.add(f"ctx.held = Held([{tensors}], [{watched}], [{inputs}])", Held=Held)


def _is_input(saved: SavedTensor) -> bool:
    return saved.by_autograd and saved.expression.startswith("args[")
