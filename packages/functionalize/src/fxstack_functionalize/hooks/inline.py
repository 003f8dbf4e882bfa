"""Inline saved-tensor hooks after partitioning: pack at the forward's end, unpack at the backward's start.

The partitioner has chosen the saved tensors. The forward graph packs each of them, and the backward graph
takes the packed values. Compilers can fuse both with neighbouring operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph, Node

from fxstack_functionalize.hooks.pair import HookPair, TracedHook, parameter_memory
from fxstack_functionalize.tracer.exact_random import is_generator_state
from fxstack_functionalize.tracing.finalize import remove_dead_code, with_graph
from fxstack_interchange import InputKind, InputSpec, OutputKind, OutputSpec, Partition, StageGraph
from fxstack_interchange.modules import make_graph_module


@dataclass(frozen=True, slots=True)
class _Packed:
    """One saved tensor with its traced hooks."""

    saved: Node
    pack: TracedHook
    unpack: TracedHook


def inline_hooks(partition: Partition, pair: HookPair) -> Partition:
    """Return the partition that saves the result of ``pair.pack`` in place of each saved tensor.

    Raises:
        NotTraceableError: if a hook cannot be traced on a saved tensor.
    """
    parameters = parameter_memory(partition.forward)
    packed = []
    for node in _saved_tensors(partition.forward):
        value = node.meta["val"]
        pack = pair.trace_pack(value, parameters)
        packed.append(_Packed(node, pack, pair.trace_unpack(pack, value)))
    forward = _forward(partition.forward, packed)
    names = [str(spec.name) for spec in forward.signature.outputs_of(OutputKind.SAVED)]
    backward = _backward(partition.backward, packed, names)
    return replace(partition, forward=forward, backward=backward, saved=tuple(names))


def _saved_tensors(forward: StageGraph) -> list[Node]:
    values = _outputs(forward.graph_module.graph)
    return [
        value
        for value, spec in zip(values, forward.signature.outputs, strict=True)
        if spec.kind is OutputKind.SAVED and _is_tensor(value) and not is_generator_state(value)
    ]


def _forward(stage: StageGraph, packed: Sequence[_Packed]) -> StageGraph:
    graph = Graph()
    env: dict[Node, Node] = {}
    for node in stage.graph_module.graph.nodes:
        if node.op != "output":
            env[node] = graph.node_copy(node, env.__getitem__)
    values = [env.get(v, v) for v in _outputs(stage.graph_module.graph)]
    made = [node for each in packed for node in each.pack.splice(graph, [env[each.saved]])]
    count = sum(spec.kind is not OutputKind.SAVED for spec in stage.signature.outputs)
    as_they_are = values[count + len(packed) :]
    saved = [*sorted(made, key=_is_number), *as_they_are]
    graph.output((*values[:count], *saved))
    remove_dead_code(graph)
    specs = tuple(OutputSpec(OutputKind.SAVED, node.name) for node in saved)
    outputs = stage.signature.outputs[:count] + specs
    signature = replace(stage.signature, outputs=outputs)
    return StageGraph(make_graph_module(stage.graph_module, graph), signature)


def _backward(stage: StageGraph, packed: Sequence[_Packed], names: Sequence[str]) -> StageGraph:
    """Add inputs for packed tensors and numbers, then the states, symbols and tangents of ``stage``."""
    graph = Graph()
    made = [node for each in packed for node in each.pack.results]
    order = sorted(range(len(made)), key=lambda i: _is_number(made[i]))
    inputs: dict[int, Node] = {}
    specs = []
    for position, name in zip(order, names, strict=False):
        inputs[position] = graph.placeholder(name)
        inputs[position].meta = dict(made[position].meta)
        specs.append(InputSpec(InputKind.SAVED, inputs[position].name, name))
    before = stage.graph_module.graph.find_nodes(op="placeholder")
    env: dict[Node, Node] = {}
    for node, spec in [*zip(before, stage.signature.inputs, strict=True)][len(packed) :]:
        env[node] = graph.node_copy(node)
        specs.append(replace(spec, name=env[node].name))
    remaining = iter(range(len(made)))
    for node, each in zip(before, packed, strict=False):
        (env[node],) = each.unpack.splice(graph, [inputs[next(remaining)] for _ in each.pack.results])
    for node in stage.graph_module.graph.nodes:
        if node.op != "placeholder":
            env[node] = graph.node_copy(node, env.__getitem__)
    remove_dead_code(graph)
    return with_graph(stage, graph, specs, env)


def _outputs(graph: Graph) -> list[Any]:
    return [*graph.output_node().args[0]]


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta["val"], torch.Tensor)


def _is_number(node: Node) -> bool:
    return not _is_tensor(node)
