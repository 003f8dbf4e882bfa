"""The computation of a partition's node in the joint graph: unchanged, converted back, or drawn again."""

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
    """An operator with its arguments."""

    target: object
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def reads(self) -> list[Node]:
        """Return the nodes among the arguments, each once, in order."""
        found: dict[Node, None] = {}
        torch.fx.node.map_arg((self.args, self.kwargs), found.setdefault)
        return list(found)


def computation(node: Node) -> Computation:
    """Return the computation of ``node``, without operators that save or set the generator's state."""
    if node.target is RUN_WITH_STATE:
        return Computation(node.args[1], node.args[2:], node.kwargs)
    base = node.args[0] if node.args else None
    if node.target is operator.getitem and isinstance(base, Node) and base.target is SAVE_STATE:
        return Computation(base.args[0], base.args[1:], base.kwargs)
    return Computation(node.target, node.args, node.kwargs)


def is_added_by_cut(node: Node) -> bool:
    """Whether a partition may add ``node``, which is not in the joint graph."""
    base = node.args[0] if node.args else None
    state = node.target is operator.getitem and isinstance(base, Node) and base.target is SAVE_STATE
    return state or node.target in (
        torch.ops.aten.clone.default,
        torch.ops.aten.sym_size.int,
        _CONVERT,
        SAVE_STATE,
    )


def is_converted_back(node: Node, original: Node, sources: dict[str, Node]) -> bool:
    """Whether ``node`` converts back a value that the forward converted from ``original``."""
    given = node.args[0] if node.args else None
    narrow = sources.get(given.name) if isinstance(given, Node) else None
    if node.target is not _CONVERT or narrow is None or narrow.target is not _CONVERT:
        return False
    value, before = original.meta.get("val"), narrow.args[0]
    return (
        isinstance(before, Node)
        and before.name == original.name
        and isinstance(value, torch.Tensor)
        and narrow.kwargs == {"dtype": narrow_dtype(original)}
        and node.kwargs == {"dtype": value.dtype}
    )


def replays_saved_state(node: Node, sources: dict[str, Node]) -> bool:
    """Whether ``node`` draws from the state that the forward saved at the same draw."""
    given = node.args[0] if node.target is RUN_WITH_STATE else None
    state = sources.get(given.name) if isinstance(given, Node) else None
    if state is None or state.target is not operator.getitem or state.args[1] != 0:
        return False
    both: Any = state.args[0]
    values = [user.name for user in both.users if user.args[1] == 1]
    return both.target is SAVE_STATE and values == [node.name]


def saved_sources(forward: StageGraph, backward: StageGraph) -> dict[str, Node]:
    """Map the names of the backward's inputs to the forward's nodes that they receive."""
    made = {node.name: node for node in forward.graph_module.graph.nodes}
    inputs = backward.graph_module.graph.find_nodes(op="placeholder")
    pairs = zip(inputs, backward.signature.inputs, strict=False)
    found = ((node.name, made.get(str(spec.target))) for node, spec in pairs)
    return {name: source for name, source in found if source is not None}
