"""Put saved-tensor hooks into the joint graph, so that the partitioner sees their cost and gain.

Each forward value that the backward reads is replaced there by ``unpack(pack(value))``. Unpacked values are
tagged to be recomputed. The partitioner may save a packed value or recompute it; the gradients are equal in
both cases.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from fxstack_functionalize.hooks.pair import HookPair, parameter_memory
from fxstack_functionalize.tracing.finalize import remove_dead_code
from fxstack_interchange import InputKind, StageGraph
from fxstack_interchange.modules import make_graph_module

# Limits: a hook sees what the partitioner saves, which are fewer tensors than eager saves, and not whether
# these require a gradient.


def hooks_in_joint(joint: StageGraph, backward: frozenset[str], pair: HookPair) -> StageGraph:
    """Return ``joint`` with the hooks around each forward value that the backward reads.

    ``backward``: names of the nodes that were recorded in the backward.

    Raises:
        NotTraceableError: if a hook cannot be traced on one of the values.
    """
    signature = joint.signature
    parameters = parameter_memory(joint)
    tangents = {s.name for s in signature.inputs_of(InputKind.TANGENT)}
    graph = Graph()
    env: dict[Node, Node] = {}
    unpacked: dict[Node, Node] = {}

    def read(node: Node) -> Node:
        """Return the value that a backward node gets for ``node``."""
        value = node.meta.get("val")
        if node.name in backward | tangents or not isinstance(value, torch.Tensor):
            return env[node]
        if node not in unpacked:
            pack = pair.trace_pack(value, parameters)
            packed = pack.splice(graph, [env[node]])
            unpack = pair.trace_unpack(pack, value)
            (unpacked[node],) = unpack.splice(graph, packed, recompute="must_recompute")
        return unpacked[node]

    for node in joint.graph_module.graph.nodes:
        source = read if node.name in backward else env.__getitem__
        env[node] = graph.node_copy(node, source)
    remove_dead_code(graph)
    return StageGraph(make_graph_module(joint.graph_module, graph), signature)
