"""Repair partitions from outside, which rely on a later stage of torch for values that the backward needs.

torch's own partitioners may save an input that the forward updates. The update happens before the backward
runs, so a later stage of torch gives the backward the old value. Here the forward saves a copy, which costs
memory. Under memory budgets, torch's partitioners also draw random numbers twice, and a later stage makes the
numbers equal. Here the forward saves the generator's state, and the backward draws from the state (see
``rng_replay``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxstack_partition.extraction.check import find_views_of
from fxstack_partition.joint.index_graph import copied_values
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.joint.ops import kind_of
from fxstack_partition.joint.rng_replay import can_replay_draw, draw_and_save_state, replay_draw


def save_copies_of_inputs(facts: JointFacts, forward: GraphModule, backward: GraphModule) -> None:
    """Change both modules in place if a saved value lies in an input that the forward updates."""
    output = forward.graph.output_node()
    values: list[Any] = list(output.args[0])
    count = len(facts.forward_outputs)
    inputs = forward.graph.find_nodes(op="placeholder")
    copied = copied_values(facts)
    updated = {node for node, primal in zip(inputs, facts.primals, strict=True) if primal in copied}
    copies = {node: _copy(forward.graph, node) for node in find_views_of(updated, values[count:])}
    if not copies:
        return
    saved = [copies.get(v, v) if isinstance(v, Node) else v for v in values[count:]]
    output.args = ((*values[:count], *saved),)
    names = {node.name: copy.name for node, copy in copies.items()}
    for node in backward.graph.find_nodes(op="placeholder"):
        if node.name in names:
            node._rename(names[node.name])
    forward.recompile()
    backward.recompile()


def _copy(graph: Graph, node: Node) -> Node:
    """Add a copy of ``node`` to the forward, to save in place of ``node``, whose memory is updated later."""
    inputs = graph.find_nodes(op="placeholder")
    clone = torch.ops.aten.clone.default
    with graph.inserting_after(inputs[-1] if node in inputs else node):
        copy = graph.create_node("call_function", clone, (node,), {}, f"{node.name}_copy")
    copy.meta = {**node.meta, "val": clone(node.meta["val"])}
    return copy


def save_generator_states(forward: GraphModule, backward: GraphModule) -> None:
    """Change both modules in place if the backward repeats a draw of the forward that can be replayed.

    Drop a repetition without users, because it would advance the generator.
    """
    draws = {n.name: n for n in forward.graph.nodes if can_replay_draw(n, kind_of(n))}
    for node in list(backward.graph.nodes):
        draw = draws.get(node.name)
        if draw is not None and draw.target == node.target:
            if node.users:
                _draw_from(backward.graph, node, _save_state(forward.graph, draw))
            else:
                backward.graph.erase_node(node)
    forward.recompile()
    backward.recompile()


def _save_state(graph: Graph, node: Node) -> Node:
    """Replace a draw of the forward by a draw that saves the state. Return the state, saved behind all tensors."""
    with graph.inserting_before(node):
        value, state = draw_and_save_state(graph, node, {arg: arg for arg in node.all_input_nodes})
    _replace(graph, node, value)
    output = graph.output_node()
    values: list[Any] = list(output.args[0])
    tensors = [
        position
        for position, v in enumerate(values)
        if isinstance(v, Node) and isinstance(v.meta.get("val"), torch.Tensor)
    ]
    values.insert(max(tensors, default=-1) + 1, state)
    output.args = (tuple(values),)
    return state


def _draw_from(graph: Graph, node: Node, state: Node) -> None:
    """Replace a draw of the backward by a draw from ``state``, which becomes an input."""
    with graph.inserting_before(next(iter(graph.nodes))):
        state_input = graph.placeholder(state.name)
        state_input.meta = dict(state.meta)
    with graph.inserting_before(node):
        draw = replay_draw(graph, node, state_input, {arg: arg for arg in node.all_input_nodes})
    _replace(graph, node, draw)


def _replace(graph: Graph, old: Node, new: Node) -> None:
    """Replace ``old`` by ``new``, under the same name."""
    name = old.name
    old.replace_all_uses_with(new)
    graph.erase_node(old)
    new.name = name
