"""Repair partitions from outside whose backward repeats draws of the forward: save the generator's state.

Under memory budgets torch's own partitioners draw random numbers twice, and rely on a later stage of torch to
make the numbers equal. Here the forward saves the generator's state, and the backward draws from it (see
``rng_replay``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxstack_partition.joint.ops import kind_of
from fxstack_partition.joint.rng_replay import can_be_redrawn, draw_again, draw_and_keep


def keep_states(forward: GraphModule, backward: GraphModule) -> None:
    """Change both modules in place if the backward repeats a draw of the forward that can be replayed.

    Drop a repetition without users: it would advance the generator.
    """
    drawn = {n.name: n for n in forward.graph.nodes if can_be_redrawn(n, kind_of(n))}
    for node in list(backward.graph.nodes):
        before = drawn.get(node.name)
        if before is not None and before.target == node.target:
            if node.users:
                _draw_from(backward.graph, node, _keep_state(forward.graph, before))
            else:
                backward.graph.erase_node(node)
    forward.recompile()
    backward.recompile()


def _keep_state(graph: Graph, node: Node) -> Node:
    """Replace a draw of the forward by one that saves the state behind all tensors. Return the state."""
    with graph.inserting_before(node):
        value, state = draw_and_keep(graph, node, _themselves(node))
    _replace(graph, node, value)
    output = graph.output_node()
    values: list[Any] = list(output.args[0])
    tensors = [i for i, v in enumerate(values) if _is_tensor(v)]
    values.insert(max(tensors, default=-1) + 1, state)
    output.args = (tuple(values),)
    return state


def _draw_from(graph: Graph, node: Node, state: Node) -> None:
    """Replace a draw of the backward by one from ``state``, which becomes an input."""
    with graph.inserting_before(next(iter(graph.nodes))):
        given = graph.placeholder(state.name)
        given.meta = dict(state.meta)
    with graph.inserting_before(node):
        drawn = draw_again(graph, node, given, _themselves(node))
    _replace(graph, node, drawn)


def _themselves(node: Node) -> dict[Node, Node]:
    return {arg: arg for arg in node.all_input_nodes}


def _replace(graph: Graph, old: Node, new: Node) -> None:
    """Replace ``old`` by ``new``, under the same name."""
    name = old.name
    old.replace_all_uses_with(new)
    graph.erase_node(old)
    new.name = name


def _is_tensor(value: object) -> bool:
    meta = getattr(value, "meta", {})
    return isinstance(meta.get("val"), torch.Tensor)
