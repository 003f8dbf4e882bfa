"""Recognise the computations that a partition changes: narrow copies, replayed draws, added nodes.

``check`` compares a partition with its joint graph, and looks through these changes.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from fxstack_interchange import StageGraph
from fxstack_partition.joint.narrow import narrow_dtype
from fxstack_partition.joint.rng_replay import RUN_WITH_STATE, SAVE_STATE

_CONVERT = torch.ops.aten._to_copy.default


class Computation(NamedTuple):
    """An operator with its arguments, as the joint graph calls it."""

    target: object
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def reads(self) -> list[Node]:
        """Return the nodes among the arguments, without duplicates, in order."""
        nodes: dict[Node, None] = {}
        torch.fx.node.map_arg((self.args, self.kwargs), nodes.setdefault)
        return list(nodes)


def computation(node: Node) -> Computation:
    """Return the operator call of ``node`` without the wrappers that save or set the generator's state."""
    if node.target is RUN_WITH_STATE:
        return Computation(node.args[1], node.args[2:], node.kwargs)
    base = node.args[0] if node.args else None
    if node.target is operator.getitem and isinstance(base, Node) and base.target is SAVE_STATE:
        return Computation(base.args[0], base.args[1:], base.kwargs)
    return Computation(node.target, node.args, node.kwargs)


def is_added_by_cut(node: Node) -> bool:
    """Whether ``node`` may be missing in the joint graph: a copy, a size, a conversion or a generator's state."""
    base = node.args[0] if node.args else None
    state = node.target is operator.getitem and isinstance(base, Node) and base.target is SAVE_STATE
    return state or node.target in (
        torch.ops.aten.clone.default,
        torch.ops.aten.sym_size.int,
        _CONVERT,
        SAVE_STATE,
    )


def is_converted_back(node: Node, original: Node, sources: dict[str, Node]) -> bool:
    """Whether ``node`` converts back a value that the forward converted from ``original`` to a narrower dtype."""
    argument = node.args[0] if node.args else None
    narrow = sources.get(argument.name) if isinstance(argument, Node) else None
    if node.target is not _CONVERT or narrow is None or narrow.target is not _CONVERT:
        return False
    value, source = original.meta.get("val"), narrow.args[0]
    return (
        isinstance(source, Node)
        and source.name == original.name
        and isinstance(value, torch.Tensor)
        and narrow.kwargs == {"dtype": narrow_dtype(original)}
        and node.kwargs == {"dtype": value.dtype}
    )


def replays_saved_state(node: Node, sources: dict[str, Node]) -> bool:
    """Whether ``node`` replays a draw of the forward from the state that the forward saved before it."""
    argument = node.args[0] if node.target is RUN_WITH_STATE else None
    state = sources.get(argument.name) if isinstance(argument, Node) else None
    if state is None or state.target is not operator.getitem or state.args[1] != 0:
        return False
    save_state: Any = state.args[0]
    values = [user.name for user in save_state.users if user.args[1] == 1]
    return save_state.target is SAVE_STATE and values == [node.name]


def saved_sources(forward: StageGraph, backward: StageGraph) -> dict[str, Node]:
    """Map the names of the backward's inputs to the forward's nodes that they receive."""
    forward_nodes = {node.name: node for node in forward.graph_module.graph.nodes}
    inputs = backward.graph_module.graph.find_nodes(op="placeholder")
    pairs = zip(inputs, backward.signature.inputs, strict=False)
    sources = ((node.name, forward_nodes.get(str(spec.target))) for node, spec in pairs)
    return {name: source for name, source in sources if source is not None}
