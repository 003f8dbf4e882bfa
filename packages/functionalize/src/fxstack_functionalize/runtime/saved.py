"""What a forward hands to its backward, held the way eager holds it.

A saved tensor that is an input or output of the graph is saved as that very tensor, and one that is a view of
either as a view that shares its version counter: changing it in place before the backward is then an error, as in
eager, and not a wrong gradient. An input that the graph itself changes is cloned before the new value is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_functionalize.metadata import GraphInfo
    from fxstack_interchange import Partition

    Hold = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Sequence[Any]]


class _How(StrEnum):
    SAME = "same"
    VIEW = "view"
    CLONE = "clone"


@dataclass(frozen=True, slots=True)
class _Held:
    """Saved tensor ``position`` shares memory with input (or flat output) ``index``."""

    position: int
    how: _How
    of_input: bool
    index: int


def holder(
    partition: Partition, info: GraphInfo, tensors: slice, names: Sequence[str]
) -> Hold | None:
    """Return a function of (args, flat outputs, saved tensors) that gives the tensors to save; None if as they are.

    ``names`` are the forward's input names in the order of the call's arguments.
    """
    plan = _plan(partition, info, tensors, names)
    if not plan:
        return None

    return _Holder(plan).hold


class _Holder:
    """What a compiler returns as it should be at the first call, it returns so always: no work later."""

    def __init__(self, plan: list[_Held]) -> None:
        self._plan = plan
        self._checked = False

    def hold(self, args: Sequence[Any], flat: Sequence[Any], saved: Sequence[Any]) -> Sequence[Any]:
        if self._checked and not self._plan:
            return saved
        held = list(saved)
        needed = []
        for entry in self._plan:
            owner = (args if entry.of_input else flat)[entry.index]
            before = held[entry.position]
            held[entry.position] = _HOLD[entry.how](owner, before)
            if held[entry.position] is not before or entry.how is not _How.SAME:
                needed.append(entry)
        if not self._checked:
            self._plan, self._checked = needed, True
        return held


def _plan(
    partition: Partition, info: GraphInfo, tensors: slice, names: Sequence[str]
) -> list[_Held]:
    graph = partition.forward.graph_module.graph
    results = graph.output_node().args[0]
    owners: dict[Any, tuple[bool, int]] = {}
    for position in range(info.output_count):
        for key in _keys(results[position]):
            owners.setdefault(key, (False, position))
    number = {name: index for index, name in enumerate(names)}
    for node in graph.find_nodes(op="placeholder"):
        for key in _keys(node):
            owners[key] = (True, number[node.name])
    plan = []
    for position, node in enumerate(results[tensors]):
        own, *memory = _keys(node)
        found = next((owners[key] for key in (own, *memory) if key in owners), None)
        if found is not None:
            how = _How.SAME if own in owners else _How.VIEW
            if found[0] and found[1] in info.mutated:
                how = _How.CLONE
            plan.append(_Held(position, how, *found))
    return plan


def _keys(node: Any) -> tuple[Any, ...]:
    """Identify a node, and the memory of its example value."""
    if not isinstance(node, torch.fx.Node):
        return ()
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return (node,)
    return (node, value.untyped_storage()._cdata)


def _same(owner: Any, saved: torch.Tensor) -> Any:
    return owner if isinstance(owner, torch.Tensor) else saved


def _view(owner: Any, saved: torch.Tensor) -> torch.Tensor:
    """Make ``saved`` a view that shares the owner's version counter, if the compiler did not copy it.

    Detached first: a view of the output itself would keep the output, and through it this very backward, alive.
    """
    if (
        not isinstance(owner, torch.Tensor)
        or owner.untyped_storage()._cdata != saved.untyped_storage()._cdata
    ):
        return saved
    return owner.detach().as_strided(saved.size(), saved.stride(), saved.storage_offset())


def _clone(owner: Any, saved: torch.Tensor) -> torch.Tensor:  # noqa: ARG001 - the table's signature
    return saved.clone()


_HOLD: dict[_How, Callable[[Any, torch.Tensor], Any]] = {
    _How.SAME: _same,
    _How.VIEW: _view,
    _How.CLONE: _clone,
}
