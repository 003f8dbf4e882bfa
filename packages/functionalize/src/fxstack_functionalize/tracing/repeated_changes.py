"""Record a function that changes single tensors for one of several rows with equal metadata, and repeat its nodes.

A fused optimizer does the same for each parameter, in two dozen operators, and so does an operator on lists. Functionalisation
and dispatch take most of the time of a trace, and for rows of equal metadata they find the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from fxstack_functionalize import torch_compat
from fxstack_functionalize.tracer.aten_tracer import AtenTracer
from fxstack_functionalize.tracer.engine import Engine, current_value, storage_key, version_of
from fxstack_functionalize.tracer.repeated_calls import (
    Recorded,
    kind_of_tensor,
    kind_of_value,
    last_node,
    recorded_after,
    repeat,
)
from fxstack_functionalize.views.memory_layout import below_functionalization, replace_value
from fxstack_interchange.operators.list_operators import ForEach

Row = Sequence[Any]
"""The tensors and numbers of one call."""


@dataclass(frozen=True, slots=True)
class _Change:
    """The nodes of one call, whose results are the new values of the tensors at the positions ``changed``.

    ``bumps``: by how much the call raises the version counter of each tensor.
    """

    recorded: Recorded
    changed: tuple[int, ...]
    bumps: tuple[int, ...]


def change_each(tracer: AtenTracer, engine: Engine, change: Callable[..., None], rows: Iterable[Row]) -> None:
    """Call ``change(*row)`` for each row of functional tensors: once for equal metadata, whose nodes the others repeat."""
    known: dict[Hashable, _Change] = {}
    for row in rows:
        tensors = [value for value in row if isinstance(value, torch.Tensor)]
        before = [current_value(engine, tensor) for tensor in tensors if engine.is_functional(tensor)]
        kind = _kind_of_row(tracer, engine, row, tensors, before)
        if kind in known:
            _repeat(tracer, engine, known[kind], tensors, before)
            continue
        last, versions = last_node(tracer), [version_of(tensor) for tensor in tensors]
        change(*row)
        states = list(zip(before, versions, strict=False))
        found = None if kind is None else _found(tracer, engine, last, tensors, states)
        if found is not None:
            known[kind] = found


def change_lists(
    tracer: AtenTracer,
    engine: Engine,
    change: Callable[..., object],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Call ``change``, which treats the items of its lists one by one, for each position of the lists."""
    values = (*args, *kwargs.values())
    are_lists = [isinstance(value, (list, tuple)) for value in values]
    count = len(args[0])
    columns = [value if listed else [value] * count for value, listed in zip(values, are_lists, strict=True)]

    def change_one(*row: object) -> None:
        """Call the function with lists of one item."""
        items = [[value] if listed else value for value, listed in zip(row, are_lists, strict=True)]
        change(items[: len(args)], dict(zip(kwargs, items[len(args) :], strict=True)))

    change_each(tracer, engine, change_one, zip(*columns, strict=True))


def changes_items(
    rules: Mapping[Any, Callable[..., Any]], function: object, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Whether a function changes a list of tensors by an operator whose rule in ``rules`` treats the items one by one."""
    name = str(getattr(function, "__name__", ""))
    if (
        not name.startswith("_foreach_")
        or not name.endswith("_")
        or getattr(torch, name, None) is not function
    ):
        return False
    values = (*args, *kwargs.values())
    lengths = {len(value) for value in values if isinstance(value, (list, tuple))}
    packet = getattr(torch.ops.aten, name[:-1], None)
    if packet is None or len(lengths) != 1 or not args or not isinstance(args[0], (list, tuple)):
        return False
    overloads = {each for each in packet.overloads() if not each.endswith("out")}
    if not any(isinstance(value, torch.Tensor) for value in values):
        overloads.discard("Tensor")
    return all(isinstance(rules.get(getattr(packet, each)), ForEach) for each in overloads)


def _kind_of_row(
    tracer: AtenTracer,
    engine: Engine,
    row: Row,
    tensors: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
) -> Hashable | None:
    """Return the metadata of the tensors, of which no two share memory; None if calls of ``change`` may differ in more."""
    if torch.is_grad_enabled() or len(values) < len(tensors):
        return None
    places = {id(tensor): place for place, tensor in enumerate(tensors)}
    storages = {storage_key(tensor) for tensor in tensors}
    if len(storages) < len(places) or _is_special(engine, storages):
        return None
    kinds: list[Hashable] = [
        None if isinstance(value, torch.Tensor) else kind_of_value(value) for value in row
    ]
    if kinds.count(None) > len(tensors):
        return None
    for tensor, value in zip(tensors, values, strict=True):
        kind = kind_of_tensor(tracer, value)
        if kind is None or tensor._base is not None or id(tensor) in engine.views_of_leaves:
            return None
        kinds += [
            places[id(tensor)],
            kind,
            tensor.shape,
            tensor.stride(),
            (tensor.requires_grad, type(tensor)),
        ]
    return tuple(kinds)


def _is_special(engine: Engine, storages: set[int]) -> bool:
    """Whether the engine has notes about the memory of a tensor, beside its value."""
    special = (engine.non_dense, engine.moved, engine.has_absolute_views)
    return any(not storages.isdisjoint(each) for each in special)


def _found(
    tracer: AtenTracer,
    engine: Engine,
    last: Node | None,
    tensors: Sequence[torch.Tensor],
    states: Sequence[tuple[torch.Tensor, int]],
) -> _Change | None:
    """Return the nodes that were recorded after ``last`` and the tensors that they change; None if they cannot be repeated.

    ``states``: the value and the version counter that each tensor had before.
    """
    before = [value for value, _ in states]
    if _is_special(engine, {storage_key(tensor) for tensor in tensors}):
        return None
    after = [current_value(engine, tensor) for tensor in tensors]
    changed = tuple([k for k, (old, new) in enumerate(zip(before, after, strict=True)) if old is not new])
    if len({id(tensors[k]) for k in changed}) < len(changed):
        return None
    recorded = recorded_after(tracer, last, before, [after[k] for k in changed])
    bumps = tuple([version_of(tensor) - old for tensor, (_, old) in zip(tensors, states, strict=True)])
    return None if recorded is None else _Change(recorded, changed, bumps)


def _repeat(
    tracer: AtenTracer,
    engine: Engine,
    change: _Change,
    tensors: Sequence[torch.Tensor],
    before: Sequence[torch.Tensor],
) -> None:
    """Repeat the nodes for the values of ``tensors``, and replace the values of the tensors that they change.

    Gradients are off, see ``_kind_of_row``.
    """
    with below_functionalization():
        for k, value in zip(change.changed, repeat(tracer, change.recorded, before), strict=True):
            replace_value(engine.core(tensors[k]), value)
    for tensor, bumps in {id(t): (t, bumps) for t, bumps in zip(tensors, change.bumps, strict=True)}.values():
        if bumps:
            torch_compat.unsafe_set_version_counter((tensor,), (tensor._version + bumps,))
