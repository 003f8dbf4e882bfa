"""Cut a graph in two: a part that depends on the model's state alone, and the rest, which uses its values."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor.lower.node_queries import has_effect, may_alias, mutates_tensor
from fxstack_interchange.modules import make_graph_module

STATE = ("_parameters_", "_buffers_")
"""Prefixes that capture gives to the names of a module's tensors; the path of the tensor follows."""
MOST_GROWTH = 1.25
"""A result larger than this multiple of its sources (e.g. dequantised weights) is computed in each call."""


@dataclass(frozen=True, slots=True)
class Split:
    """A graph in two parts; ``rest`` takes the arguments ``kept``, then the results of ``constants``."""

    constants: GraphModule
    rest: GraphModule
    state: tuple[int, ...]
    """Positions of the arguments that ``constants`` takes."""
    compared: tuple[int, ...]
    """Positions of the arguments among ``state`` whose versions do not show every change."""
    kept: tuple[int, ...]
    """Positions of the arguments that ``rest`` takes."""


def is_state(node: FxNode) -> bool:
    """Whether a placeholder is, by its name, a parameter or buffer that the graph only reads.

    The guess may be wrong, so each call checks the tensors behind stored results.
    """
    value = node.meta.get("val")
    if not _is_plain(value):
        return False
    named = any(part in f"_{node.target}" for part in STATE)
    return (isinstance(value, torch.nn.Parameter) or named) and not any(map(_writes, node.users))


def _is_plain(value: object) -> bool:
    """Whether a fake value is a strided CPU tensor without symbolic sizes: only such a value can be stored."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not value._has_symbolic_sizes_strides
    )


def _changes_silently(node: FxNode) -> bool:
    """Whether a tensor may be running statistics: training batch norms change them without a new version."""
    value = node.meta["val"]
    parameter = isinstance(value, torch.nn.Parameter)
    return value.dim() == 1 and value.is_floating_point() and not parameter


def _writes(user: FxNode) -> bool:
    """Whether ``user`` may change its argument: its schema declares a write, or it is a training batch norm.

    The schema of a training batch norm may not declare the write. A function without schema counts as not writing.
    """
    trains = "batch_norm" in str(user.target) and not is_evaluated_norm(user)
    return trains or mutates_tensor(user)


def is_evaluated_norm(node: FxNode) -> bool:
    """Whether a batch norm uses its running statistics without changing them."""
    if node.target is torch.ops.aten._native_batch_norm_legit_no_training.default:
        return True
    return node.target is torch.ops.aten.native_batch_norm.default and node.args[5] is False


def constant_nodes(graph_module: GraphModule) -> set[FxNode]:
    """Return the nodes that are computed without effects from state and numbers."""
    constant: set[FxNode] = set()
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            if is_state(node):
                constant.add(node)
        elif node.op == "call_function":
            sources = node.all_input_nodes
            if sources and all(s in constant for s in sources) and _is_pure(node):
                constant.add(node)
    return constant


def _is_pure(node: FxNode) -> bool:
    """Whether a call has no effect but its result."""
    plain = PACKED in node.meta or node.target is operator.getitem
    return plain or not (mutates_tensor(node) or has_effect(node))


PACKED = "packed"
"""Metadata key of nodes that call functions of this package, which have no schema."""


def split(graph_module: GraphModule) -> Split | None:
    """Return the two parts of the graph, for ``freeze``; None if no computed value is worth storing."""
    constant = constant_nodes(graph_module)
    # A stored value must not be returned: the caller may write to the result.
    inner = constant - _results(graph_module)
    calls = [n for n in graph_module.graph.nodes if n in inner and n.op != "placeholder"]
    border = [n for n in calls if any(u not in inner for u in n.users) and not _grows(n)]
    if not any(not may_alias(n) or PACKED in n.meta for n in _behind(border)):
        return None
    parameters = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    needed = set(_behind(border))
    state = tuple(k for k, node in enumerate(parameters) if node in needed)
    compared = tuple(k for k in state if _changes_silently(parameters[k]))
    constants = _graph_of(graph_module, [parameters[k] for k in state], border)
    rest, arguments = _rest(graph_module, parameters, border)
    return Split(constants, rest, state, compared, arguments)


def _results(graph_module: GraphModule) -> set[FxNode]:
    """Return the graph's results, and the nodes whose memory a result may share.

    Each call must return memory of its own.
    """
    (output,) = graph_module.graph.find_nodes(op="output")
    reached = _reached(output.all_input_nodes, lambda node: node.all_input_nodes if may_alias(node) else ())
    return {node for node in reached if node.op != "placeholder"}


def _reached(
    starts: Iterable[FxNode],
    sources: Callable[[FxNode], Iterable[FxNode]] = lambda node: node.all_input_nodes,
) -> set[FxNode]:
    """Return ``starts`` and all nodes that are reached from them; ``sources`` gives the next nodes of a node."""
    seen: set[FxNode] = set()
    stack = list(starts)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(sources(node))
    return seen


def _behind(nodes: Iterable[FxNode]) -> list[FxNode]:
    """Return ``nodes`` and all nodes from which they are computed, in the graph's order."""
    return sorted(_reached(nodes))


def _grows(node: FxNode) -> bool:
    """Whether the result needs more memory than ``MOST_GROWTH`` times the state from which it is computed."""
    if PACKED in node.meta:
        return False
    state_bytes = sum(_bytes(n.meta["val"]) for n in _behind([node]) if n.op == "placeholder")
    return _bytes(node.meta["val"]) > MOST_GROWTH * state_bytes


def _bytes(value: object) -> float:
    """Return the bytes of a result; infinity for a number or symbolic size, which must stay in the graph."""
    if not isinstance(value, torch.Tensor):
        return math.inf  # the value must stay in the graph
    if any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride())):
        return math.inf
    last = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    return float((last + 1) * value.element_size() if value.numel() else 0)


def _graph_of(graph_module: GraphModule, parameters: list[FxNode], results: list[FxNode]) -> GraphModule:
    """Return a graph module that takes ``parameters`` and returns the tuple ``results``."""
    graph = Graph()
    copies: dict[FxNode, FxNode] = {}
    for node in (*parameters, *(n for n in _behind(results) if n.op != "placeholder")):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in results))
    return make_graph_module(graph_module, graph, deferred=True)


def _rest(
    graph_module: GraphModule, parameters: list[FxNode], border: list[FxNode]
) -> tuple[GraphModule, tuple[int, ...]]:
    """Return the graph without the nodes of the constant part, and the positions of its arguments.

    The values ``border`` become further arguments.
    """
    graph: Graph = Graph()
    copies: dict[FxNode, FxNode] = {}
    (output,) = graph_module.graph.find_nodes(op="output")
    needed = _without(output, set(border))
    arguments = tuple(k for k, n in enumerate(parameters) if n in needed or not is_state(n))
    for k in arguments:
        copies[parameters[k]] = graph.node_copy(parameters[k])
    for node in border:
        copies[node] = graph.placeholder(f"{node.name}_folded")
        copies[node].meta["val"] = node.meta["val"]
    lookup: Callable[[FxNode], FxNode] = copies.__getitem__
    for node in graph_module.graph.nodes:
        if node not in copies and (node in needed or not _removable(node)):
            copies[node] = graph.node_copy(node, lookup)
    return make_graph_module(graph_module, graph, deferred=True), arguments


def _removable(node: FxNode) -> bool:
    """Whether a node without users can be removed, because it has no effect."""
    return node.op in {"placeholder", "get_attr"} or (node.op == "call_function" and _is_pure(node))


def _without(output: FxNode, border: set[FxNode]) -> set[FxNode]:
    """Return the nodes that results and effects need if the nodes ``border`` are given."""
    effects = [n for n in output.graph.nodes if not _removable(n)]
    return _reached([output, *effects], lambda node: (n for n in node.all_input_nodes if n not in border))
