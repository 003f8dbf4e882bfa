"""Let calls of ATen read one tensor where their operands are equal: the mask that each layer of a model builds again.

A call needs its operands in memory, so equal operands cost a kernel and memory for each call. Operands of generated
loops stay apart: each kernel computes them again in registers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Mapping
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor import torch_compat
from fxstack_inductor.lower.node_queries import has_effect, may_alias, mutates_tensor
from fxstack_interchange.modules import copied_graph, make_graph_module

COPY = torch.ops.aten.copy_.default


def share_operands(graph_module: GraphModule, by_kernels: Callable[[FxNode], bool]) -> GraphModule:
    """Return ``graph_module``, or a copy in which calls with equal operands read the first of them.

    ``by_kernels``: whether generated loops compute a node. The graph stays as it is if a node may write to memory
    before the graph ends, because a value may then be equal to an earlier one in a part of the graph only.
    """
    nodes = list(graph_module.graph.nodes)
    if not all(map(_is_known, nodes)):
        return graph_module
    reads = [
        (node, operand)
        for node in nodes
        if not (node.op != "call_function" or node.target is COPY or by_kernels(node) or may_alias(node))
        for operand in node.all_input_nodes
        if _makes_tensor(operand, by_kernels)
    ]
    if len(reads) < 2:
        return graph_module
    numbers, apart = _numbers(nodes), _with_memory_of_results(nodes)
    first: dict[int, FxNode] = {}
    pairs: dict[tuple[FxNode, FxNode], FxNode] = {}
    for node, operand in reads:
        if operand not in apart:
            original = first.setdefault(numbers[operand], operand)
            if original is not operand:
                pairs[node, operand] = original
    return _rewritten(graph_module, pairs) if pairs else graph_module


def _is_known(node: FxNode) -> bool:
    """Whether the node writes nothing, except into an input when the graph ends."""
    if node.op != "call_function":
        return node.op in {"placeholder", "get_attr", "output"}
    if node.target in {COPY, operator.getitem}:
        return True
    if not isinstance(node.target, torch_compat.OpOverload):
        return isinstance(
            node.meta.get("val"), (bool, int, float, torch.SymBool, torch.SymInt, torch.SymFloat)
        )
    return bool(node.target.namespace in {"aten", "prims"} and not mutates_tensor(node))


def _makes_tensor(node: FxNode, by_kernels: Callable[[FxNode], bool]) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor) and node.op == "call_function" and by_kernels(node)


def _numbers(nodes: list[FxNode]) -> dict[FxNode, int]:
    """Return a number for each node; nodes with equal numbers have equal values."""
    numbers: dict[FxNode, int] = {}
    known: dict[object, int] = {}
    for node in nodes:
        key: object = node
        if node.op == "call_function" and not has_effect(node):
            key = (node.target, argument_key(node.args, numbers), argument_key(node.kwargs, numbers))
        numbers[node] = known.setdefault(key, len(known))
    return numbers


def argument_key(value: Any, numbers: Mapping[FxNode, object]) -> object:
    """Return an argument as a key, in which ``numbers`` replaces nodes.

    Equal numbers of different types, and zeros of different signs, differ.
    """
    if isinstance(value, FxNode):
        return numbers[value]
    if isinstance(value, (tuple, list)):
        return tuple(argument_key(item, numbers) for item in value)
    if isinstance(value, dict):
        return tuple((name, argument_key(item, numbers)) for name, item in sorted(value.items()))
    if isinstance(value, slice):
        return "slice", argument_key((value.start, value.stop, value.step), numbers)
    return type(value), repr(value)


def _with_memory_of_results(nodes: list[FxNode]) -> Container[FxNode]:
    """Return the nodes that may share memory with a result or a new value of an input: results must stay apart."""
    waiting = [
        arg for node in nodes if node.op == "output" or node.target is COPY for arg in node.all_input_nodes
    ]
    found: set[FxNode] = set()
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            if node.op == "call_function" and may_alias(node):
                waiting += node.all_input_nodes
    return found


def _rewritten(graph_module: GraphModule, pairs: dict[tuple[FxNode, FxNode], FxNode]) -> GraphModule:
    """Return a copy of the graph in which ``node`` reads ``original`` in place of ``operand``, for each pair."""
    graph, copies = copied_graph(graph_module)
    for (node, operand), original in pairs.items():
        copies[node].replace_input_with(copies[operand], copies[original])
    erased: set[FxNode] = set()
    for _, operand in reversed(pairs):
        _erase(copies[operand], erased)
    return make_graph_module(graph_module, graph, deferred=True)


def _erase(node: FxNode, erased: set[FxNode]) -> None:
    """Erase ``node``, and the nodes that only it reads, unless something else reads them."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if current.users or current in erased or current.op != "call_function" or has_effect(current):
            continue
        waiting += current.all_input_nodes
        current.graph.erase_node(current)
        erased.add(current)
