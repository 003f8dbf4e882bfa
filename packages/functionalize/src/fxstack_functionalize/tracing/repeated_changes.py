"""Record a function that changes single tensors for one of several rows with equal metadata, and repeat its nodes.

A fused optimizer does the same for each parameter, in two dozen operators. Functionalisation and dispatch take most of the
time of a trace, and for rows of equal metadata they find the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from fxstack_functionalize.tracer.aten_tracer import AtenTracer
from fxstack_functionalize.tracer.engine import Engine, current_value, storage_key
from fxstack_functionalize.tracer.repeated_calls import (
    Recorded,
    kind_of_tensor,
    last_node,
    recorded_after,
    repeat,
)
from fxstack_functionalize.views.memory_layout import on_values, replace_value


@dataclass(frozen=True, slots=True)
class _Change:
    """The nodes of one call, whose results are the new values of the tensors at the positions ``changed``."""

    recorded: Recorded
    changed: tuple[int, ...]


def change_each(
    tracer: AtenTracer,
    engine: Engine,
    change: Callable[..., None],
    rows: Iterable[Sequence[torch.Tensor | None]],
) -> None:
    """Call ``change(*row)`` for each row of functional tensors: once for equal metadata, whose nodes the others repeat."""
    known: dict[Hashable, _Change] = {}
    for row in rows:
        tensors = [tensor for tensor in row if tensor is not None]
        kind = _kind_of_row(tracer, engine, row, tensors)
        if kind in known:
            _repeat(tracer, engine, known[kind], tensors)
            continue
        before = [] if kind is None else [current_value(engine, tensor) for tensor in tensors]
        last = last_node(tracer)
        change(*row)
        found = None if kind is None else _found(tracer, engine, last, tensors, before)
        if found is not None:
            known[kind] = found


def _kind_of_row(
    tracer: AtenTracer, engine: Engine, row: Sequence[torch.Tensor | None], tensors: Sequence[torch.Tensor]
) -> Hashable | None:
    """Return the metadata of the tensors, which share no memory; None if calls of ``change`` may differ in more."""
    if torch.is_grad_enabled() or not all(map(engine.is_functional, tensors)):
        return None
    storages = {storage_key(tensor) for tensor in tensors}
    special = (engine.non_dense, engine.moved, engine.has_absolute_views)
    if len(storages) < len(tensors) or any(not storages.isdisjoint(each) for each in special):
        return None
    kinds: list[Hashable] = [tensor is None for tensor in row]
    for tensor in tensors:
        kind = kind_of_tensor(tracer, current_value(engine, tensor))
        if kind is None or tensor._base is not None or id(tensor) in engine.views_of_leaves:
            return None
        kinds += [kind, tensor.shape, tensor.stride(), tensor.requires_grad, repr(type(tensor))]
    return tuple(kinds)


def _found(
    tracer: AtenTracer,
    engine: Engine,
    last: Node | None,
    tensors: Sequence[torch.Tensor],
    before: Sequence[torch.Tensor],
) -> _Change | None:
    """Return the nodes that were recorded after ``last`` and the tensors that they change; None if they cannot be repeated."""
    after = [current_value(engine, tensor) for tensor in tensors]
    changed = tuple([k for k, (old, new) in enumerate(zip(before, after, strict=True)) if old is not new])
    recorded = recorded_after(tracer, last, before, [after[k] for k in changed])
    return None if recorded is None else _Change(recorded, changed)


def _repeat(tracer: AtenTracer, engine: Engine, change: _Change, tensors: Sequence[torch.Tensor]) -> None:
    """Repeat the nodes for the values of ``tensors``, and replace the values of the tensors that they change."""
    before = [current_value(engine, tensor) for tensor in tensors]
    with on_values():
        for k, value in zip(change.changed, repeat(tracer, change.recorded, before), strict=True):
            replace_value(engine.core(tensors[k]), value)
