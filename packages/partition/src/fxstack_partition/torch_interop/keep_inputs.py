"""Repair partitions from outside that save inputs which the forward updates: save copies instead.

The inputs are updated when the forward returns, before the backward runs. torch's own partitioners rely on a
later stage of torch to give the backward the old values. Here the forward copies them, which costs memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import Graph, GraphModule, Node

from fxstack_partition.extraction.check import lying_in
from fxstack_partition.joint.compact import copied_values
from fxstack_partition.joint.joint import JointFacts


def keep_inputs(facts: JointFacts, forward: GraphModule, backward: GraphModule) -> None:
    """Change both modules in place if a saved value lies in an input that the forward updates."""
    values: Sequence[object] = forward.graph.output_node().args[0]
    count = len(facts.forward_outputs)
    given = forward.graph.find_nodes(op="placeholder")
    updated = {n for n, p in zip(given, facts.primals, strict=True) if p in copied_values(facts)}
    copies = {node: _copy(forward.graph, node) for node in lying_in(updated, values[count:])}
    if not copies:
        return
    saved = [copies.get(v, v) if isinstance(v, Node) else v for v in values[count:]]
    forward.graph.output_node().args = ((*values[:count], *saved),)
    names = {node.name: copy.name for node, copy in copies.items()}
    for node in backward.graph.find_nodes(op="placeholder"):
        if node.name in names:
            node._rename(names[node.name])
    forward.recompile()
    backward.recompile()


def _copy(graph: Graph, node: Node) -> Node:
    inputs = graph.find_nodes(op="placeholder")
    with graph.inserting_after(inputs[-1] if node in inputs else node):
        copy = graph.create_node(
            "call_function", torch.ops.aten.clone.default, (node,), {}, f"{node.name}_copy"
        )
    copy.meta = {**node.meta, "val": torch.ops.aten.clone.default(node.meta["val"])}
    return copy
