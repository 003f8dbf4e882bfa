"""Replace the nodes of operators that only call their function by the nodes of the function.

``wrap``, ``hints_wrapper``, ``strict_mode`` and relatives have the meaning of a plain call, so the later stages
need not know them. This happens before a graph is traced, also inside of the nested graphs of other operators.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import no_gradient_error
from fxstack_functionalize.torch_compat import BaseHOP, HigherOrderOperator, tree_leaves
from fxstack_interchange.modules import make_graph_module


@dataclass(frozen=True, slots=True)
class Inlined:
    """How the node of an operator calls its function."""

    function: int = 0
    """The position of the function. The constants of the operator come before the function."""
    groups_operands: bool = False
    """Whether the operands are one argument, a tuple, rather than the arguments after the function."""
    has_gradient: bool = True
    """Whether a backward runs through the function. Otherwise the operator's backward raises."""
    state: Callable[[Graph, Node, bool], Callable[[], Node]] | None = None
    """Add nodes that set the state of torch for the function; return a function that adds those that restore it. The
    arguments: the graph, the node, and whether gradients are on before the node."""


def _grad_mode(graph: Graph, node: Node, before: bool) -> Callable[[], Node]:
    """Add a node that sets the grad mode to the first argument of ``node``."""
    graph.call_function(torch_compat.set_grad_enabled, (node.args[0],))
    return partial(graph.call_function, torch_compat.set_grad_enabled, (before,))


def _autocast(graph: Graph, node: Node, _before: bool) -> Callable[[], Node]:
    """Add a node that enters autocast with the first four arguments of ``node``."""
    mode = graph.call_function(torch_compat.enter_autocast, node.args[:4])
    return partial(graph.call_function, torch_compat.exit_autocast, (mode,))


OPERATORS: dict[str, Inlined] = {
    "wrap": Inlined(),
    "wrap_with_set_grad_enabled": Inlined(function=1, state=_grad_mode),
    "wrap_with_autocast": Inlined(function=4, state=_autocast),
    "local_map_hop": Inlined(),
    "hints_wrapper": Inlined(groups_operands=True, has_gradient=False),
    "strict_mode": Inlined(groups_operands=True, has_gradient=False),
    "run_const_graph": Inlined(groups_operands=True, has_gradient=False),
}
"""By name. Operators that torch derives from ``BaseHOP`` (``foreach_map``, ``invoke_quant``) are like ``wrap``."""
_NOT_INLINED = frozenset({"invoke_subgraph"})


def rule_of(target: object) -> Inlined | None:
    """Return how to inline an operator, or None for another function."""
    if not isinstance(target, HigherOrderOperator):
        return None
    rule = OPERATORS.get(target.name())
    is_plain = rule is None and isinstance(target, BaseHOP) and target.name() not in _NOT_INLINED
    return Inlined() if is_plain else rule


def inline_operators(module: GraphModule) -> GraphModule:
    """Return ``module`` without nodes of the operators that only call their function.

    Raises:
        UnsupportedGraphError: if a result of an operator without a gradient requires one.
    """
    if not any(rule_of(node.target) for graph in _graphs(module) for node in graph.nodes):
        return module
    root = torch.nn.Module()
    root.__dict__.update(module.__dict__)
    root._modules = dict(module._modules)
    graph = Graph()
    _Copy(root, graph, grad_mode=torch.is_grad_enabled()).run(module, None)
    inlined = make_graph_module(root, graph, type(module).__name__)
    inlined.meta.update(module.meta)
    return inlined


def _graphs(module: GraphModule) -> Iterator[Graph]:
    """Yield the graph of a module and of all modules inside."""
    return (child.graph for child in module.modules() if isinstance(child, GraphModule))


class _Copy:
    """Copies a graph and the graphs of its inlined functions into one graph. ``root`` holds the attributes."""

    def __init__(self, root: torch.nn.Module, graph: Graph, *, grad_mode: bool) -> None:
        self.root = root
        self.graph = graph
        self.grad_mode = grad_mode

    def run(self, module: GraphModule, arguments: list[Any] | None) -> Any:
        """Copy the nodes of ``module``, whose inputs are ``arguments``; return what its output node returns.

        ``arguments`` is None for the outermost graph, whose placeholders and output are copied.
        """
        env: dict[Node, Any] = {}
        inputs = iter(arguments or ())
        for node in module.graph.nodes:
            if node.op == "placeholder" and arguments is not None:
                env[node] = next(inputs)
            elif node.op == "output" and arguments is not None:
                return torch.fx.node.map_arg(node.args[0], env.__getitem__)
            elif node.op == "get_attr" and (arguments is not None or _is_graph(module, node)):
                env[node] = self._attribute(module, node)
            elif (rule := rule_of(node.target)) is not None:
                env[node] = self._inline(module, node, rule, env)
            elif node.target is operator.getitem and not isinstance(env[node.args[0]], Node):
                env[node] = env[node.args[0]][node.args[1]]
            else:
                env[node] = self.graph.node_copy(node, env.__getitem__)
                if node.target is torch_compat.set_grad_enabled:
                    self.grad_mode = node.args[0]
        return None

    def _inline(self, module: GraphModule, node: Node, rule: Inlined, env: dict[Node, Any]) -> Any:
        """Copy the nodes of the function of an operator."""
        if not rule.has_gradient and _requires_grad(node):
            raise no_gradient_error(node.target)
        body = module.get_submodule(str(node.args[rule.function].target))
        assert isinstance(body, GraphModule)
        rest = node.args[rule.function + 1 :]
        operands = rest[0] if rule.groups_operands else rest
        arguments = [torch.fx.node.map_arg(value, env.__getitem__) for value in operands]
        before = self.grad_mode
        restore = rule.state(self.graph, node, before) if rule.state is not None else None
        if rule.state is _grad_mode:
            self.grad_mode = bool(node.args[0])
        result = self.run(body, arguments)
        if restore is not None:
            restore()
        self.grad_mode = before
        return result

    def _attribute(self, module: GraphModule, node: Node) -> Node:
        """Copy a ``get_attr`` node, and its value to the root. A graph is inlined first."""
        value = operator.attrgetter(str(node.target))(module)
        if isinstance(value, GraphModule):
            value = inline_operators(value)
        name = free_name(self.root, str(node.target).replace(".", "_"), value)
        setattr(self.root, name, value)
        copied = self.graph.get_attr(name)
        copied.meta = dict(node.meta)
        return copied


def free_name(root: torch.nn.Module, name: str, value: object) -> str:
    """Return the first of ``name``, ``name_1``, ``name_2`` that ``root`` lacks, or that has ``value`` already."""
    candidate, count = name, 0
    while getattr(root, candidate, value) is not value:
        count += 1
        candidate = f"{name}_{count}"
    return candidate


def _is_graph(module: GraphModule, node: Node) -> bool:
    """Return whether a ``get_attr`` node of the outermost graph loads a nested graph."""
    return isinstance(operator.attrgetter(str(node.target))(module), GraphModule)


def _requires_grad(node: Node) -> bool:
    """Return whether a result of a node requires a gradient."""
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in tree_leaves(node.meta.get("val")))
