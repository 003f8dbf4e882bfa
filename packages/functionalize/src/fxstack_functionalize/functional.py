"""The inference graph: inputs' new values are copied back by nodes at the end of the graph itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from fxstack_functionalize.finalize import FlatSlot
    from fxstack_functionalize.metadata import GraphInfo
    from fxstack_functionalize.session import Session


def copy_back_in_graph(
    session: Session, slots: list[FlatSlot], info: GraphInfo
) -> tuple[list[FlatSlot], GraphInfo]:
    """Append ``aten.copy_(input, value)`` for every mutated input and drop these values from the outputs.

    A compiler may then write the new value in place; nothing that the graph returns is read after the copies.
    """
    kept = [slot for slot in slots if slot.mutated_input is None]
    graph = session.tracer.graph
    for slot in slots:
        if slot.mutated_input is None:
            continue
        target = session.inputs[slot.mutated_input].node
        node = graph.call_function(torch.ops.aten.copy_.default, (target, slot.node))
        node.meta["val"] = target.meta["val"] if target is not None else None
    dropped = len(slots) - len(kept)
    info = replace(
        info, mutated=(), in_graph=info.mutated, output_count=len(kept), strides=info.strides[dropped:]
    )
    return kept, info.shifted(-dropped)
