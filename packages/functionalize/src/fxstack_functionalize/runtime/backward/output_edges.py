"""Find which results of a graph are computed from which other results, for autograd.

One autograd node represents a whole compiled graph, so all results seem to come from the inputs alone. In
eager, a result gets the gradient of another result that is computed from it: hooks and ``retain_grad`` see
this gradient, and ``autograd.grad(loss, logits)`` returns it. ``plan_output_edges`` finds such results in the
captured graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from fxstack_functionalize import torch_compat
from fxstack_functionalize.metadata.records import GraphInfo, OutputInfo, OutputSource
from fxstack_functionalize.metadata.replay import AliasSource
from fxstack_functionalize.torch_compat import OpOverload, pytree
from fxstack_functionalize.torch_state import capture_torch_state
from fxstack_functionalize.trace import Shell, Traced
from fxstack_functionalize.tracing.finalize import has_effect
from fxstack_functionalize.views.inplace import is_in_place
from fxstack_interchange.torch_facts.effects import RANGES, is_check

Reach = frozenset[int]


@dataclass(frozen=True, slots=True)
class OutputEdge:
    """The flat output at ``position`` is computed from the results ``origins`` (user outputs) alone."""

    position: int
    origins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Owner:
    """The user output for a flat output: the same tensor or, if ``base`` is True, a view of the flat output."""

    output: int
    """The number of the user output."""
    base: bool


@dataclass(frozen=True, slots=True)
class OutputEdges:
    """All edges of a graph. The edges of a result follow the edges of its origins."""

    all: tuple[OutputEdge, ...]
    cuts: tuple[tuple[int, Node], ...]
    """For each origin the captured node after which the origin has its final value."""
    in_state: Callable[[Callable[[], Any]], Any]
    """Calls a function in the grad mode and autocast of the captured graph."""


def find_owners(info: GraphInfo) -> dict[int, Owner]:
    """Map the position of each differentiable flat output to its ``Owner``.

    A flat output without an owner is missing.
    """
    owner_of: dict[int, Owner] = {}
    for number, (output, position) in _place_outputs(info).items():
        base = output.source is OutputSource.ALIAS
        if position not in owner_of or (owner_of[position].base and not base):
            owner_of[position] = Owner(number, base=base)
    return owner_of


def _place_outputs(info: GraphInfo) -> dict[int, tuple[OutputInfo, int]]:
    """Return the computed user outputs with gradients, each with the flat output that owns its memory."""
    custom = {position for position, _ in info.custom_views}
    placed: dict[int, tuple[OutputInfo, int]] = {}
    for number, output in enumerate(info.outputs):
        if not output.requires_grad or output.is_leaf:
            continue
        if output.source is OutputSource.VALUE and output.index not in custom:
            placed[number] = output, output.index
        elif output.source is OutputSource.ALIAS:
            memory = info.memory_of(output, -1)
            if memory is not None and memory[0] is AliasSource.OUTPUT:
                placed[number] = output, memory[1]
    differentiable = set(info.differentiable)
    return {number: owner for number, owner in placed.items() if owner[1] in differentiable}


def plan_output_edges(shell: Shell) -> OutputEdges | None:
    """Return the edges between results of a captured graph; None for a graph without such edges."""
    graph = shell.captured.graph_module.graph
    results = pytree.tree_leaves(graph.output_node().args[0])
    if len(results) != len(shell.info.outputs):  # one operator returns several results
        return None
    nodes: dict[Node, int] = {}
    positions: dict[int, int] = {}
    for number, (_, position) in _place_outputs(shell.info).items():
        if isinstance(results[number], Node) and results[number].op != "placeholder":
            nodes.setdefault(results[number], number)
            positions[number] = position
    if len(nodes) < 2:
        return None
    # A result that is changed in place has its final value, and so its gradient, only behind the last write.
    finals = _last_writes(graph, nodes)
    origins: dict[int, set[int]] = {}
    for node, reached in _origins_of(graph, nodes, finals).items():
        if node in nodes:
            position = positions[nodes[node]]
            other_origins = {origin for origin in reached if positions[origin] != position}
            if other_origins:
                origins.setdefault(position, set()).update(other_origins)
    if not origins:
        return None
    used = set().union(*origins.values())
    return OutputEdges(
        tuple(OutputEdge(position, tuple(sorted(found))) for position, found in origins.items()),
        tuple((nodes[node], final) for node, final in finals.items() if nodes[node] in used),
        capture_torch_state(),
    )


def _last_writes(graph: Graph, candidates: Collection[Node]) -> dict[Node, Node]:
    """Return candidate -> the last node that writes to the candidate's memory, or the candidate itself.

    Leave out candidates whose memory is read after that node through a tensor from before it.
    """
    order = {node: index for index, node in enumerate(graph.nodes)}
    finals = {node: node for node in candidates}
    by_memory: dict[int, list[Node]] = {}
    for node in candidates:
        for key in _storages(node):
            by_memory.setdefault(key, []).append(node)
    for node in graph.nodes:
        for key in {key for used in _written_arguments(node) for key in _storages(used)}:
            for candidate in by_memory.get(key, ()):
                if order[candidate] < order[node]:
                    finals[candidate] = node
    return {
        node: final
        for node, final in finals.items()
        if final is node or not _is_used_elsewhere(graph, node, order, order[final])
    }


def _is_used_elsewhere(graph: Graph, node: Node, order: Mapping[Node, int], final: int) -> bool:
    """Return whether a later node reads the memory of ``node`` through a tensor from before the last write."""
    memory = set(_storages(node))
    return any(
        node_of_graph is not node
        and order[node_of_graph] <= final
        and not memory.isdisjoint(_storages(node_of_graph))
        and any(order[user] > final for user in node_of_graph.users)
        for node_of_graph in graph.nodes
    )


def _origins_of(graph: Graph, numbers: Mapping[Node, int], finals: Mapping[Node, Node]) -> dict[Node, Reach]:
    """Return for each node the nearest origins from which the node is computed, with gradients."""
    reached: dict[Node, Reach] = {}
    written: dict[int, Reach] = {}
    """By storage: the origins reached through in-place writes to the storage."""
    final: dict[Node, int] = {}
    origins_by_end: dict[Node, list[Node]] = {}
    for origin, last_write in finals.items():
        origins_by_end.setdefault(last_write, []).append(origin)

    def through(node: Node) -> Reach:
        """Return the origins that a reader of ``node`` reaches.

        From its last write on, an origin reaches only itself.
        """
        if node in final:
            return frozenset({final[node]})
        return reached[node].union(*(written.get(key, frozenset()) for key in _storages(node)))

    for node in graph.nodes:
        of_arguments: Reach = frozenset().union(*map(through, node.all_input_nodes))
        for key in {key for used in _written_arguments(node) for key in _storages(used)}:
            written[key] = written.get(key, frozenset()) | of_arguments
        is_trained = any(tensor.requires_grad for tensor in _tensors_of(node))
        reached[node] = of_arguments if is_trained else frozenset()
        for origin in origins_by_end.get(node, ()):
            reached[origin] = reached[origin].union(
                *(written.get(key, frozenset()) for key in _storages(origin))
            )
            final[origin] = numbers[origin]
    return reached


def _tensors_of(node: Node) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(node.meta.get("val", node.meta.get("example_value")))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _storages(node: Node) -> list[int]:
    tensors = map(_unwrapped, _tensors_of(node))
    return [t.untyped_storage()._cdata for t in tensors if t.layout is torch.strided]


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor below function transforms, whose wrappers torch's frontend leaves in its graphs."""
    while torch_compat.is_functorch_wrapped_tensor(tensor):
        tensor = torch_compat.get_unwrapped(tensor)
    return tensor


def _written_arguments(node: Node) -> list[Node]:
    """Return the arguments that a call may change: by its schema, or by torch's naming conventions."""
    if isinstance(node.target, OpOverload):
        return node.all_input_nodes if node.target._schema.is_mutable else []
    first = is_in_place(node.target) or "inplace" in node.kwargs
    written: list[Node] = []
    map_arg((node.args[:1] if first else (), node.kwargs.get("out")), written.append)
    return written


@dataclass(frozen=True, slots=True)
class Refusals:
    """The reasons why the captured graph cannot run again in eager, or None.

    ``whole``: for gradients of gradients and batches of gradients. ``between``: for gradients between
    results. ``draws``: whether the graph draws random numbers.
    """

    whole: str | None
    between: str | None
    draws: bool


def find_refusals(traced: Traced) -> Refusals:
    """Return why the graph cannot run again. A run for gradients between results restores torch's state of the call."""
    nodes = [node for node in traced.stage_graph.graph_module.graph.nodes if node.op == "call_function"]
    random = [node for node in nodes if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())]
    info, module = traced.info, traced.captured.graph_module
    named = {
        name
        for members in (module.named_parameters, module.named_buffers)
        for name, _ in members(remove_duplicate=False)
    }
    changes = any(info_of_input.mutates_data for info_of_input in info.inputs)
    relays = any(info_of_input.relayouts for info_of_input in info.inputs)
    effects = any(
        has_effect(node) and not (is_check(node.target) or node.target in RANGES)
        for node in nodes
        if node not in random
    )
    # A run between results restores the generator and the modes of the call, so random numbers on CPU and
    # autocast are no reason for ``between``.
    state = info.autocast or not info.grad_mode
    hidden = bool(info.custom_views) or not find_owners(info).keys() >= set(info.differentiable)
    on_host = all(tensor.device.type == "cpu" for node in random for tensor in _tensors_of(node))
    unnamed = not named.issuperset(traced.captured.owned)
    reasons = (
        ("the graph changes its inputs in place", changes or relays, changes),
        ("the graph has effects", effects, effects),
        ("the graph draws random numbers", bool(random), not on_host),
        ("the graph was compiled under autocast or torch.no_grad", state, False),
        ("the graph returns views that only autograd knows", hidden, False),
        ("the graph holds tensors that are neither parameters nor buffers", unnamed, unnamed),
    )
    return Refusals(
        next((reason for reason, is_whole, _ in reasons if is_whole), None),
        next((reason for reason, _, is_between in reasons if is_between), None),
        bool(random),
    )
