"""Functions that operators call (the branches of ``cond``, the bodies of loops), found equal by their structure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor import torch_compat
from fxstack_inductor.ir.nodes import Layout, Node
from fxstack_inductor.lower.node_queries import has_effect, mutates_tensor
from fxstack_interchange.modules import copied_graph, make_graph_module
from fxstack_interchange.torch_facts.effects import must_run


@dataclass(frozen=True, eq=False)
class NestedGraph:
    """A functional ATen graph that an operator of the graph calls; the targets compile it as a graph of its own."""

    module: GraphModule

    @property
    def is_single(self) -> bool:
        """Whether the function returns one value instead of a tuple."""
        (output,) = self.module.graph.find_nodes(op="output")
        return isinstance(output.args[0], FxNode)


@dataclass
class NestedGraphs:
    """The nested graphs of one compilation. Structurally equal modules share one ``NestedGraph``."""

    found: dict[Hashable, NestedGraph] = field(default_factory=dict)
    by_module: dict[GraphModule, NestedGraph] = field(default_factory=dict)
    schedule: Callable[[NestedGraph, tuple[Layout | None, ...], bool], Any] | None = None
    """Returns a function as a part of the host program (``nested.calls.Function``), or None if it cannot be one.

    It takes the layouts of the results, and whether each result has memory of its own. None if host programs have no loops.
    """

    def graph_of(self, module: GraphModule) -> NestedGraph:
        """Return the nested graph of ``module``, or that of an equal module."""
        graph = self.by_module.get(module)
        if graph is None:  # calls of one region share the module, and its structure is long
            live = _without_dead_code(module)
            graph = self.found.setdefault(structure(live), NestedGraph(live))
            self.by_module[module] = graph
        return graph


FUNCTIONS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "cond": (1, 2),
        "hints_wrapper": (0,),
        "invoke_subgraph": (0,),
        "map_impl": (0,),
        "scan": (0,),
        "strict_mode": (0,),
        "switch": (1,),
        "while_loop": (0, 1),
        "while_loop_stack_output": (0, 1),
        "wrap": (0,),
    }
)
"""The positions of the functions among the arguments, by the name of the operator; ``runtime.nested`` runs each."""


def calls_nested_graphs(node: FxNode) -> bool:
    """Whether the functions of the call ``node`` can be compiled: graphs whose nodes carry fake values."""
    name = operator_name(node.target)
    # Since torch 2.15 the operators list the operands that they write; a functional graph has none.
    if name is None or any(key != "mutated_arg_indices" or value for key, value in node.kwargs.items()):
        return False
    functions = [*_functions(node.args, FUNCTIONS[name])]
    return bool(functions) and all(map(_is_compilable, functions))


def operator_name(target: object) -> str | None:
    """Return the name of an operator in ``FUNCTIONS``; None for other targets."""
    for name in FUNCTIONS:
        if getattr(torch.ops.higher_order, name, None) is target:
            return name
    return None


def _functions(args: tuple[Any, ...], positions: tuple[int, ...]) -> Iterator[object]:
    """Yield the attributes of the module that are functions of the call."""
    for position in positions:
        value = args[position] if position < len(args) else None
        for item in value if isinstance(value, (tuple, list)) else (value,):
            yield _attribute(item)


def _attribute(value: object) -> object:
    """Return the attribute that the node ``value`` reads; None if the node reads no attribute."""
    if not isinstance(value, FxNode) or value.op != "get_attr":
        return None
    found: Any = value.graph.owning_module
    for part in str(value.target).split("."):
        found = getattr(found, part, None)
    return found


def _is_compilable(function: object) -> bool:
    """Whether ``function`` is a functional graph of operators whose placeholders and results have fake values."""
    if not isinstance(function, GraphModule):
        return False
    for node in function.graph.nodes:
        if node.op not in {"placeholder", "get_attr", "call_function", "output"}:
            return False
        if node.op in {"placeholder", "call_function"} and "val" not in node.meta:
            return False
        if node.op == "call_function" and mutates_tensor(node):
            return False
    (output,) = function.graph.find_nodes(op="output")
    results = output.args[0]
    flat = results if isinstance(results, (tuple, list)) else (results,)
    return not any(isinstance(value, (tuple, list, dict)) for value in flat)


def _without_dead_code(module: GraphModule) -> GraphModule:
    """Return ``module`` without operators whose results nothing reads; ATen would run them in each iteration."""
    graph, _ = copied_graph(module)
    removed = graph.eliminate_dead_code(partial(_must_stay, root=module))
    return make_graph_module(module, graph, module._get_name()) if removed else module


def _must_stay(node: FxNode, root: GraphModule) -> bool:
    """Whether ``node`` has a meaning beside its result: inputs, effects, errors, and operators with functions."""
    if node.op == "call_function" and not isinstance(node.target, torch_compat.OperatorBase):
        return False  # numbers, and items of results
    return node.op in {"placeholder", "output"} or must_run(node, root) or has_effect(node)


# --- structural equality ------------------------------------------------------------------------------


def structure(module: GraphModule) -> Hashable:
    """Return a value that is equal for modules that compute the same, by the same operators on the same metadata."""
    numbers: dict[FxNode, int] = {}
    lines: list[Hashable] = []
    for node in module.graph.nodes:
        numbers[node] = len(numbers)
        target: Hashable = node.op
        if node.op == "get_attr":
            target = _of_attribute(_attribute(node))
        elif node.op == "call_function":
            target = node.target
        form = _form_of(numbers)
        lines.append((node.op, target, form(node.args), form(node.kwargs), _facts(node.meta.get("val"))))
    return tuple(lines)


def _of_attribute(value: object) -> Hashable:
    """Return the structure of a nested module, or the identity of another attribute."""
    return structure(value) if isinstance(value, GraphModule) else id(value)


def _form_of(numbers: Mapping[FxNode, int]) -> Callable[[Any], Hashable]:
    """Return a function from arguments to hashable values, in which nodes are numbers."""

    def form(value: Any) -> Hashable:
        """Return one argument; numbers of different types differ."""
        match value:
            case FxNode():
                return ("node", numbers[value])
            case tuple() | list():
                return (type(value).__name__, *map(form, value))
            case dict():
                return ("dict", *((key, form(item)) for key, item in value.items()))
            case slice():
                return ("slice", form(value.start), form(value.stop), form(value.step))
            case None | bool() | int() | float() | complex() | str() | torch.dtype() | torch.device():
                return (type(value).__name__, repr(value))
            case torch.SymInt() | torch.SymFloat() | torch.SymBool():
                return (type(value).__name__, str(value))
            case torch.layout() | torch.memory_format():
                return str(value)
            case _:
                return id(value)

    return form


def _facts(value: object) -> Hashable:
    """Return what compilation reads of a fake value."""
    match value:
        case torch.Tensor():
            strided = value.layout is torch.strided
            layout = (
                (str(tuple(value.stride())), str(value.storage_offset())) if strided else str(value.layout)
            )
            bits = (value.is_conj(), value.is_neg())
            return (str(value.dtype), str(value.device), str(tuple(value.shape)), layout, bits)
        case tuple() | list():
            return tuple(map(_facts, value))
        case _:
            return str(value)


def map_functions(args: tuple[Any, ...], target: object, graphs: NestedGraphs) -> tuple[Any, ...]:
    """Return the lowered arguments of a call with nested graphs in place of the functions."""
    name = operator_name(target)
    assert name is not None
    changed = list(args)
    for position in FUNCTIONS[name]:
        changed[position] = _nested(changed[position], graphs)
    return tuple(changed)


def _nested(value: Any, graphs: NestedGraphs) -> Any:
    """Return the nested graph of a module, or those of a list of modules."""
    if isinstance(value, (tuple, list)):
        return tuple(_nested(item, graphs) for item in value)
    return graphs.graph_of(value)


def nested_graphs(values: object) -> Iterator[NestedGraph]:
    """Yield the nested graphs in the arguments of a call."""
    if isinstance(values, NestedGraph):
        yield values
    elif isinstance(values, (tuple, list)) and not isinstance(values, Node):
        for value in values:
            yield from nested_graphs(value)
