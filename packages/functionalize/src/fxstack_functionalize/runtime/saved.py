"""What a forward hands to its backward, held the way eager holds it.

A saved tensor that is an input or output of the graph is saved as that very tensor, and one that is a view of
either as a view that shares its version counter: changing it in place before the backward is then an error, as in
eager, and not a wrong gradient. An input that the graph itself changes is cloned before the new value is written.
All others nobody else can see; they are kept in a plain list, which the backward empties as it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxstack_functionalize.metadata import GraphInfo
    from fxstack_functionalize.runtime.source import Source
    from fxstack_interchange import Partition


class Saving(Enum):
    """Who looks after the saved tensors."""

    PLAIN = auto()
    """Autograd those that others can see and change, this package the rest."""
    PACKED = auto()
    """They were packed by hooks: nobody checks whether they were changed, as in eager."""
    HOOKED = auto()
    """Autograd all of them, as it calls the hooks that are on."""


class _How(StrEnum):
    """How the tensor to save is made from its owner and the graph's result."""

    SAME = "{owner}"
    VIEW = "view_of({owner}, {value})"
    CLONE = "{value}.clone()"
    DATA = "{owner}.data"
    RESULT = "{value}"


_UNCHECKED = {_How.SAME: _How.DATA, _How.VIEW: _How.RESULT}
"""The same memory without the owner's version counter."""


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """Saved tensor number ``number``, flat result ``position``: the expression of what is saved, and by whom."""

    number: int
    expression: str
    by_autograd: bool


def saved_tensors(
    partition: Partition, info: GraphInfo, positions: range, names: Sequence[str], saving: Saving
) -> list[SavedTensor]:
    """Plan how the results at ``positions`` are saved.

    ``names`` are the forward's input names in the order of the call's arguments. Expressions speak of ``args``, ``results``
    and ``flat``.
    """
    results: Any = partition.forward.graph_module.graph.output_node().args[0]
    owners = _owners(partition, info, names)
    plan = []
    for number, position in enumerate(positions):
        own, *memory = _keys(results[position])
        found = next((owners[key] for key in (own, *memory) if key in owners), None)
        value = f"flat[{position}]"
        if found is None:
            plan.append(SavedTensor(number, value, saving is Saving.HOOKED))
            continue
        of_input, index = found
        owner = f"{'args' if of_input else 'results'}[{index}]"
        how = _How.SAME if own in owners else _How.VIEW
        if of_input and index in info.mutated:
            how = _How.CLONE
        elif saving is Saving.PACKED:
            how = _UNCHECKED[how]
        expression = how.format(owner=owner, value=value)
        plan.append(SavedTensor(number, expression, saving is not Saving.PACKED))
    return plan


def add_saving(source: Source, plan: Sequence[SavedTensor]) -> None:
    """Add the statements that save."""
    for_autograd = [saved.expression for saved in plan if saved.by_autograd]
    kept = [saved.expression for saved in plan if not saved.by_autograd]
    if for_autograd:
        source.add(f"ctx.save_for_backward({', '.join(for_autograd)})", view_of=view_of)
    if kept:
        source.add(f"ctx.kept = [{', '.join(kept)}]")


def add_unsaving(source: Source, plan: Sequence[SavedTensor]) -> list[str]:
    """Add the statements that read what was saved; return the expressions of all saved tensors in order.

    Reading ``ctx.saved_tensors`` raises autograd's error if the backward has run before without ``retain_graph``.
    """
    if not plan:
        return []
    source.add("saved = ctx.saved_tensors")
    if any(not saved.by_autograd for saved in plan):
        source.add("kept = ctx.kept")
        source.add("if not keeps_graph():", keeps_graph=KEEPS_GRAPH)
        source.add("    ctx.kept = None")
    counters = {True: iter(range(len(plan))), False: iter(range(len(plan)))}
    return [
        f"{'saved' if item.by_autograd else 'kept'}[{next(counters[item.by_autograd])}]"
        for item in plan
    ]


KEEPS_GRAPH = torch._C._autograd._get_current_graph_task_keep_graph


def _owners(
    partition: Partition, info: GraphInfo, names: Sequence[str]
) -> dict[Any, tuple[bool, int]]:
    """By node and by memory: the input (True, number) or flat output (False, position)."""
    graph = partition.forward.graph_module.graph
    results: Any = graph.output_node().args[0]
    owners: dict[Any, tuple[bool, int]] = {}
    for position in range(info.output_count):
        for key in _keys(results[position]):
            owners.setdefault(key, (False, position))
    number = {name: index for index, name in enumerate(names)}
    for node in graph.find_nodes(op="placeholder"):
        for key in _keys(node):
            owners[key] = (True, number[node.name])
    return owners


def _keys(node: Any) -> tuple[Any, ...]:
    """Identify a node, and the memory of its example value."""
    if not isinstance(node, torch.fx.Node):
        return ()
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return (node,)
    return (node, value.untyped_storage()._cdata)


def view_of(owner: Any, saved: torch.Tensor) -> torch.Tensor:
    """Make ``saved`` a view that shares the owner's version counter, if the compiler did not copy it.

    Detached first: a view of the output itself would keep the output, and through it this very backward, alive.
    """
    if (
        not isinstance(owner, torch.Tensor)
        or owner.untyped_storage()._cdata != saved.untyped_storage()._cdata
    ):
        return saved
    return owner.detach().as_strided(saved.size(), saved.stride(), saved.storage_offset())
