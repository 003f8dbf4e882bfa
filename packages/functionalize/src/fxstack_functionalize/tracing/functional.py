"""The inference graph: nodes at its end copy new values back into mutated inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, Node

from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.metadata.replay import AliasSource
from fxstack_functionalize.tracing.finalize import FlatSlot
from fxstack_functionalize.tracing.session import Session


def copy_back_in_graph(
    session: Session, slots: Sequence[FlatSlot], info: GraphInfo
) -> tuple[list[FlatSlot], GraphInfo]:
    """Append ``aten.copy_(input, value)`` for every mutated input, and drop these values from the outputs.

    A compiler may then write the new value in place: no returned value is read after the copies.
    """
    kept = [slot for slot in slots if slot.mutated_input is None]
    graph = session.tracer.graph
    changed = [slot for slot in slots if slot.mutated_input is not None]
    targets = [session.inputs[info.mutated[number]].node for number in range(len(changed))]
    memory = {_memory(target) for target in targets}
    values = [_cloned(graph, slot.node) if _memory(slot.node) in memory else slot.node for slot in changed]
    for target, value in zip(targets, values, strict=True):
        assert target is not None
        node = graph.call_function(torch.ops.aten.copy_.default, (target, value))
        node.meta["val"] = target.meta["val"]
    dropped = len(slots) - len(kept)
    kept = [replace(slot, alias=_shifted(slot.alias, dropped)) for slot in kept]
    info = replace(
        info, mutated=(), in_graph=info.mutated, output_count=len(kept), strides=info.strides[dropped:]
    )
    return kept, info.shifted(-dropped)


def _shifted(alias: tuple[AliasSource, int] | None, dropped: int) -> tuple[AliasSource, int] | None:
    """Return the owner of an output's memory without the first ``dropped`` flat outputs."""
    if alias is None or alias[0] is not AliasSource.OUTPUT:
        return alias
    return AliasSource.OUTPUT, alias[1] - dropped


def _memory(node: Any) -> Any:
    """Return the identity of the memory of a node's value."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return value.untyped_storage()._cdata
    return node


def _cloned(graph: Graph, value: Node) -> Node:
    """Clone a value that views a mutated input before any input is written."""
    node = graph.call_function(torch.ops.aten.clone.default, (value,))
    node.meta["val"] = value.meta["val"]
    return node
