"""The tensors that a forward saves for its backward, kept as in eager.

Autograd saves a saved tensor that is an input or output of the graph; for a view of one, it saves this input
or output as well. So an in-place change before the backward raises as in eager, instead of giving a wrong
gradient. An input that the graph itself changes is cloned before the new value is written. No other code can
see the remaining saved tensors: they are in a plain list, which the backward empties at its start. The
generator state for recomputed random numbers is no activation: hooks do not see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import SAVED_ARE_FREED
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.random.rng import is_generator_state
from fxstack_functionalize.runtime.backward.unreadable import read_alone
from fxstack_functionalize.runtime.source import Source
from fxstack_interchange import Partition

# Limits: a backward that recomputes from an input which eager does not save ((z * 2 + 1).square()) raises if
# that input was changed. After a change through .data it may read the value before or after the change,
# unlike eager.


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
    """Saved tensor number ``number``: the expression of the saved value, and its owner.

    ``guard``: the expression of the tensor that it views, whose version counter is checked.
    """

    number: int
    expression: str
    by_autograd: bool
    guard: str | None = None


def saved_tensors(
    partition: Partition, info: GraphInfo, positions: range, names: Sequence[str], saving: Saving
) -> list[SavedTensor]:
    """Plan how the results at ``positions`` are saved.

    ``names``: the forward's input names in the order of the call's arguments. The expressions use the names
    ``args``, ``results`` and ``flat``.
    """
    results: Any = partition.forward.graph_module.graph.output_node().args[0]
    owners = _owners(partition, info, names)
    plan = []
    for number, position in enumerate(positions):
        if is_generator_state(results[position]):
            plan.append(SavedTensor(number, f"flat[{position}]", by_autograd=False))
            continue
        own, *memory = _keys(results[position])
        found = next((owners[key] for key in (own, *memory) if key in owners), None)
        plan.append(_plan(number, f"flat[{position}]", found, info, saving, same=own in owners))
    return plan


def _plan(
    number: int, value: str, found: tuple[bool, int] | None, info: GraphInfo, saving: Saving, *, same: bool
) -> SavedTensor:
    """Plan one result. ``found``: the owner of its memory; ``same``: whether it is the owner itself."""
    hooked = saving is Saving.HOOKED
    if found is None:
        return SavedTensor(number, value, hooked)
    of_input, index = found
    if of_input and index in info.mutated:
        return SavedTensor(number, f"{value}.clone()", hooked)
    owner = f"{'args' if of_input else 'results'}[{index}]"
    if saving is Saving.PACKED:
        return SavedTensor(number, f"{owner}.data" if same else value, by_autograd=False)
    if same:
        changes = of_input and info.inputs[index].relayouts
        # The caller's tensor will have other metadata in the backward; the detached one shares its version.
        return SavedTensor(number, f"{owner}.detach()" if changes else owner, by_autograd=True)
    return SavedTensor(number, value, hooked, None if hooked else owner)


def add_saving(source: Source, plan: Sequence[SavedTensor]) -> None:
    """Add the statements that save tensors."""
    for_autograd = _for_autograd(plan)
    kept = [saved.expression for saved in plan if not saved.by_autograd]
    if for_autograd:
        source.add(f"ctx.save_for_backward({', '.join(for_autograd)})")
    if kept:
        source.add(f"ctx.kept = [{', '.join(kept)}]")


def _for_autograd(plan: Sequence[SavedTensor]) -> list[str]:
    """Return the expressions of the tensors in ``ctx.saved_tensors``."""
    found = [saved.expression for saved in plan if saved.by_autograd]
    guards = dict.fromkeys(saved.guard for saved in plan if saved.guard is not None)
    return found + [guard for guard in guards if guard not in found]


def saved_inputs(plan: Sequence[SavedTensor], count: int) -> dict[int, int]:
    """Return which of the ``count`` arguments are in ``ctx.saved_tensors``, and their positions."""
    places = {expression: place for place, expression in enumerate(_for_autograd(plan))}
    names = {index: f"args[{index}]" for index in range(count)}
    return {index: places[name] for index, name in names.items() if name in places}


def saved_places(plan: Sequence[SavedTensor]) -> list[tuple[int, ...]]:
    """Return for each saved tensor its position, and that of its base, in ``ctx.saved_tensors``."""
    places = {expression: place for place, expression in enumerate(_for_autograd(plan))}
    return [
        tuple(
            places[expression]
            for expression in (saved.expression if saved.by_autograd else None, saved.guard)
            if expression is not None
        )
        for saved in plan
    ]


def add_unsaving(source: Source, plan: Sequence[SavedTensor], *, may_need_few: bool = False) -> list[str]:
    """Add the statements that read saved tensors. Return the expressions of all saved tensors in order.

    ``may_need_few``: some backwards need only some tensors; ``unreadable`` is then None or maps positions to
    errors.

    Reading ``ctx.saved_tensors`` raises autograd's error if the backward has run without ``retain_graph``.
    After a backward that raised, only the tensors kept here are freed; the error text is the same.
    """
    if not plan:
        source.add("saved = ()")
        return []
    if may_need_few:
        source.add("unreadable = None")
        with source.trying():
            source.add("saved = ctx.saved_tensors")
        source.add("except RuntimeError as error:")
        source.add("    saved, unreadable = read_alone(ctx, error)", read_alone=read_alone)
    else:
        source.add("saved = ctx.saved_tensors")
    if any(not saved.by_autograd for saved in plan):
        source.add("kept = ctx.kept")
        source.add("if kept is None:")
        source.add("    raise RuntimeError(freed)", freed=SAVED_ARE_FREED)
        source.add("if not keeps_graph():", keeps_graph=KEEPS_GRAPH)
        source.add("    ctx.kept = None")
    counters = {True: iter(range(len(plan))), False: iter(range(len(plan)))}
    return [f"{'saved' if item.by_autograd else 'kept'}[{next(counters[item.by_autograd])}]" for item in plan]


KEEPS_GRAPH = torch_compat.get_current_graph_task_keep_graph


def _owners(partition: Partition, info: GraphInfo, names: Sequence[str]) -> dict[Any, tuple[bool, int]]:
    """Return the owner of each node and memory: an input (True, number) or flat output (False, position)."""
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


def _keys(node: object) -> tuple[Any, ...]:
    """Return keys of a node: itself, and the memory of its example value."""
    if not isinstance(node, torch.fx.Node):
        return ()
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return (node,)
    return (node, value.untyped_storage()._cdata)
