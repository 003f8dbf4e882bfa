"""The passes that put saved-tensor hooks into the graphs of a training step.

The hooks go into the joint graph before partitioning, or into both graphs after it. Before partitioning, each
forward value that the backward reads becomes ``unpack(pack(value))``, and the partitioner may save the packed
value or recompute it. After partitioning, the forward packs each tensor that the partitioner saves, and the
backward starts by unpacking it. Compilers can fuse both with neighbouring operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from fxstack_functionalize.hooks.pack_unpack import HookPair, TracedHook, parameter_memory
from fxstack_functionalize.tracer.exact_random import is_generator_state
from fxstack_functionalize.tracing.finalize import remove_dead_code, with_graph
from fxstack_interchange import InputKind, InputSpec, OutputKind, OutputSpec, Partition, StageGraph
from fxstack_interchange.format.show import show
from fxstack_interchange.modules import make_graph_module
from fxstack_interchange.passes import NothingToDo, Pass


@dataclass(frozen=True, slots=True)
class _Packed:
    """One saved tensor with its traced hooks."""

    saved: Node
    """The node whose value is saved."""
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
    forward = _pack_in_forward(partition.forward, packed)
    names = [str(spec.name) for spec in forward.signature.outputs_of(OutputKind.SAVED)]
    backward = _unpack_in_backward(partition.backward, packed, names)
    return replace(partition, forward=forward, backward=backward, saved=tuple(names))


def _saved_tensors(forward: StageGraph) -> list[Node]:
    """Return the nodes of the tensors that the forward saves, without the states of generators."""
    values = _outputs(forward.graph_module.graph)
    return [
        value
        for value, spec in zip(values, forward.signature.outputs, strict=True)
        if spec.kind is OutputKind.SAVED and _is_tensor(value) and not is_generator_state(value)
    ]


def _pack_in_forward(stage: StageGraph, packed: Sequence[_Packed]) -> StageGraph:
    """Return the forward that saves packed tensors, then packed numbers, then states and symbols, which hooks do not see."""
    graph = Graph()
    env: dict[Node, Node] = {}
    for node in stage.graph_module.graph.nodes:
        if node.op != "output":
            env[node] = graph.node_copy(node, env.__getitem__)
    values = [env.get(v, v) for v in _outputs(stage.graph_module.graph)]
    packed_nodes = [node for hooks in packed for node in hooks.pack.splice(graph, [env[hooks.saved]])]
    count = sum(spec.kind is not OutputKind.SAVED for spec in stage.signature.outputs)
    as_they_are = values[count + len(packed) :]
    saved = [*sorted(packed_nodes, key=_is_number), *as_they_are]
    graph.output((*values[:count], *saved))
    remove_dead_code(graph, root=stage.graph_module)
    specs = tuple(OutputSpec(OutputKind.SAVED, node.name) for node in saved)
    outputs = stage.signature.outputs[:count] + specs
    signature = replace(stage.signature, outputs=outputs)
    return StageGraph(make_graph_module(stage.graph_module, graph), signature)


def _unpack_in_backward(stage: StageGraph, packed: Sequence[_Packed], names: Sequence[str]) -> StageGraph:
    """Add inputs for packed tensors and numbers, then the states, symbols and tangents of ``stage``."""
    graph = Graph()
    packed_nodes = [node for hooks in packed for node in hooks.pack.results]
    order = sorted(range(len(packed_nodes)), key=lambda i: _is_number(packed_nodes[i]))
    inputs: dict[int, Node] = {}
    specs = []
    for position, name in zip(order, names, strict=False):
        inputs[position] = graph.placeholder(name)
        inputs[position].meta = dict(packed_nodes[position].meta)
        specs.append(InputSpec(InputKind.SAVED, inputs[position].name, name))
    placeholders = stage.graph_module.graph.find_nodes(op="placeholder")
    env: dict[Node, Node] = {}
    for node, spec in [*zip(placeholders, stage.signature.inputs, strict=True)][len(packed) :]:
        env[node] = graph.node_copy(node)
        specs.append(replace(spec, name=env[node].name))
    remaining = iter(range(len(packed_nodes)))
    for node, hooks in zip(placeholders, packed, strict=False):
        (env[node],) = hooks.unpack.splice(graph, [inputs[next(remaining)] for _ in hooks.pack.results])
    for node in stage.graph_module.graph.nodes:
        if node.op != "placeholder":
            env[node] = graph.node_copy(node, env.__getitem__)
    remove_dead_code(graph, root=stage.graph_module)
    return with_graph(stage, graph, specs, env)


def _outputs(graph: Graph) -> list[Any]:
    return [*graph.output_node().args[0]]


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta["val"], torch.Tensor)


def _is_number(node: Node) -> bool:
    return not _is_tensor(node)


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
    remove_dead_code(graph, root=joint.graph_module)
    return StageGraph(make_graph_module(joint.graph_module, graph), signature)


@dataclass(frozen=True, slots=True)
class HookedStep:
    """A training step between two passes. ``backward``: names of the joint graph's nodes of the backward.

    ``early``: whether the partitioner sees the hooks.
    """

    joint: StageGraph
    backward: frozenset[str]
    pair: HookPair
    early: bool
    cut: Callable[[StageGraph], Partition]
    """The partitioner."""
    parts: Partition | None = None
    """None before ``cut_joint``."""

    @property
    def partition(self) -> Partition:
        assert self.parts is not None
        return self.parts


def hook_joint(state: HookedStep) -> HookedStep | NothingToDo:
    """Put the hooks around each forward value that the backward reads, so that the partitioner sees them.

    >>> hooked("hook_joint", lambda x: x.exp())
    - # joint graph: 2 inputs, 2 operations, 2 outputs
    + # joint graph: 2 inputs, 4 operations, 2 outputs
    - mul = aten.mul.Tensor(tangents_1, exp)
    + div = aten.div.Tensor(exp, 2)
    + mul = aten.mul.Tensor(div, 2)
    ...
    + mul_1,  # gradient of x
    """
    if not state.early:
        return NothingToDo("the partitioner decides without the hooks")
    return replace(state, joint=hooks_in_joint(state.joint, state.backward, state.pair))


def cut_joint(state: HookedStep) -> HookedStep:
    """Cut the joint graph by the partitioner.

    >>> hooked("cut_joint", lambda x: x.sin())
    - # joint graph: 2 inputs, 5 operations, 2 outputs
    + # forward graph: 1 inputs, 4 operations, 2 outputs
    - tangents_1: f32[3],  # tangent sin
    + sin,  # user_output
    + cos,  # saved
    ...
    - sin,  # user_output
    """
    return replace(state, parts=state.cut(state.joint))


def hook_saved(state: HookedStep) -> HookedStep | NothingToDo:
    """Pack the saved tensors at the end of the forward, and unpack them at the start of the backward.

    >>> hooked("hook_saved", lambda x: x.sin(), early=False)
    - # forward graph: 1 inputs, 2 operations, 2 outputs
    + # forward graph: 1 inputs, 3 operations, 2 outputs
    + div = aten.div.Tensor(cos, 2)
    - cos,  # saved
    - # backward graph: 2 inputs, 1 operations, 1 outputs
    ...
    + mul_1,  # gradient of x
    """
    if state.early:
        return NothingToDo("the joint graph has the hooks")
    return replace(state, parts=inline_hooks(state.partition, state.pair))


def text(state: HookedStep) -> str:
    """Return the state after a pass as text, for debug output: the joint graph, or both graphs once it is cut."""
    if state.parts is None:
        return show(state.joint)
    return f"{show(state.parts.forward)}\n{show(state.parts.backward)}"


HOOKS: Final = (Pass("hook_joint", hook_joint), Pass("cut_joint", cut_joint), Pass("hook_saved", hook_saved))
