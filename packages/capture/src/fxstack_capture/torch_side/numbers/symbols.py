"""Symbolic numbers as graph nodes. A symbol is an input of the graph. An expression is computed at its first
use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import sympy
import torch
from torch import fx

from fxstack_capture import torch_compat
from fxstack_capture.shapes.geometry import Geometry
from fxstack_capture.sources import Size, Source, StorageOffset, Stride
from fxstack_capture.torch_compat import OptimizedPythonReferenceAnalysis, sympy_interp


class GraphAnalysis(OptimizedPythonReferenceAnalysis):
    """Computes sympy functions on nodes. Where torch leaves operations to sympy, Python arithmetic replaces
    them.
    """

    @staticmethod
    def int_truediv(a: Any, b: Any) -> Any:
        """Record the true division of integers."""
        return a / b

    @staticmethod
    def trunc_to_int(x: object, dtype: object) -> Any:  # noqa: ARG004 - torch's signature; its own rule returns x
        """Record the truncation of a float to an integer."""
        return torch.sym_int(x)

    @staticmethod
    def floor_to_int(x: Any, dtype: object) -> Any:  # noqa: ARG004
        """Record the floor of a float as an integer."""
        return torch.sym_int(x // 1)

    @staticmethod
    def ceil_to_int(x: Any, dtype: object) -> Any:  # noqa: ARG004
        """Record the ceiling of a float as an integer."""
        return -torch.sym_int(-x // 1)


class Symbols:
    """Maps sympy symbols and expressions to nodes of ``graph``. Each expression is computed once.

    ``placeholder`` is a function that adds an input to the graph.
    """

    def __init__(
        self, geometry: Geometry, graph: fx.Graph, placeholder: Callable[[Source, object], fx.Node]
    ) -> None:
        self._geometry = geometry
        self._graph = graph
        self._placeholder = placeholder
        self.sources: Mapping[sympy.Symbol, tuple[Source, Any]] = geometry.primary
        """The source of each input symbol, and a symbolic number that consists of the symbol alone."""
        self._nodes: dict[sympy.Basic, fx.Node] = {}

    def bind(self, value: Any, node: fx.Node) -> None:
        """Record that ``node`` computes the symbolic number ``value``, for example the result of ``item()``."""
        self._nodes.setdefault(value.node.expr, node)

    def can_compute(self, expr: sympy.Basic) -> bool:
        """Return whether ``expr`` can be computed: each of its symbols is an input, a computed float, or has
        a node.
        """
        sources = (self._nodes, self.sources, self._geometry.computed)
        return all(any(symbol in source for source in sources) for symbol in expr.free_symbols)

    def is_after(self, symbol: sympy.Symbol, mark: fx.Node) -> bool:
        """Return whether a node after ``mark`` computes ``symbol``, for example inside of a nested graph."""
        node = self._nodes.get(symbol)
        return node is not None and mark < node

    def forget(self, removed: set[fx.Node]) -> None:
        """Forget the nodes that ``roll_back`` has removed."""
        self._nodes = {expr: node for expr, node in self._nodes.items() if node not in removed}

    def leave(self, nodes: Collection[fx.Node]) -> None:
        """Forget expressions that a nested graph of ``nodes`` computes: the next nested graph cannot use these nodes."""
        inner = set(nodes)
        self._nodes = {e: node for e, node in self._nodes.items() if e.is_Symbol or node not in inner}

    def is_new(self, result: Any) -> bool:
        """Return whether ``result`` is or contains a symbolic number that needs a node, because a symbol of
        it has none.
        """
        if isinstance(result, (tuple, list)):
            return any(self.is_new(item) for item in result)
        if not symbolic_number(result):
            return False
        return not self.can_compute(result.node.expr)

    def node_of(self, value: Any) -> Any:
        """Return the node of a symbolic number. If its expression is constant, return the plain number."""
        expr = value.node.expr
        if expr.is_number or expr in (sympy.true, sympy.false):
            return value.node.pytype(expr)
        node = self._nodes.get(expr)
        if node is None:
            if type(value) is torch.SymInt and not expr.is_Symbol:
                if not value.node.shape_env.demand_words(expr, self._may_grow):
                    return int(value)
                expr = value.node.expr  # use the current expression, which a guard may have simplified
            node = self._compute(expr, value)
        return node

    def _may_grow(self, symbol: sympy.Symbol) -> bool:
        """Return whether the symbol is a number of the program. A size is limited, because its tensor exists."""
        return symbol in self.sources and not isinstance(
            self.sources[symbol][0], Size | Stride | StorageOffset
        )

    def assumed(self, expr: sympy.Basic, value: torch.SymBool) -> fx.Node:
        """Return the node that computes ``expr``, an assumption. The graph asserts it.

        ``value`` is the symbolic bool of the assumption.
        """
        # ``value`` cannot be used, because the assumption has already simplified it.
        node = self._nodes.get(expr)
        return self._compute(expr, value) if node is None else node

    def _compute(self, expr: sympy.Basic, value: object) -> fx.Node:
        """Add nodes that compute ``expr``, and return the last node.

        ``value`` is the symbolic number of ``expr``, if there is one.
        """
        graph = self._graph
        tracer = fx.proxy.GraphAppendingTracer(graph)
        names = sorted(expr.free_symbols, key=str)
        env = {name: fx.Proxy(self._symbol_node(name), tracer) for name in names}
        node: fx.Node
        if expr in env:
            return env[expr].node
        last = next(iter(reversed(graph.nodes)))
        with torch_compat.EnableTorchFunction():  # proxies need ``__torch_function__``
            node = sympy_interp(GraphAnalysis, env, expr).node
        _annotate_after(last, graph)
        if value is not None:
            node.meta.update(val=value, example_value=value)
        self._nodes[expr] = node
        return node

    def _float_node(self, symbol: sympy.Symbol) -> fx.Node:
        """Add a node for the float operation of the program whose result is ``symbol``. Return the node."""
        computed = self._geometry.computed[symbol]
        operands = [self._operand(operand) for operand in computed.operands]
        node = self._graph.call_function(computed.operation.function, tuple(operands))
        value = node.target(*fx.map_arg(node.args, lambda n: n.meta["val"]))
        node.meta.update(val=value, example_value=value)
        return node

    def _operand(self, operand: object) -> Any:
        """Return the node of an operand of a float operation. A plain operand is returned unchanged."""
        if not isinstance(operand, sympy.Basic):
            return operand
        node = self._nodes.get(operand)
        return self._compute(operand, None) if node is None else node

    def bind_input(self, symbol: sympy.Symbol) -> None:
        """Add an input of the graph for ``symbol``, a size of an input, unless it has a node. Called at the
        end.
        """
        node = self._nodes.get(symbol)
        if node is None or node._erased:
            self._nodes.pop(symbol, None)
            self._symbol_node(symbol)

    def _symbol_node(self, symbol: sympy.Symbol) -> fx.Node:
        """Return the node of a symbol: an input, a computed float, or the number of a bool in a tensor."""
        node = self._nodes.get(symbol)
        if node is None and symbol in self._geometry.computed:
            node = self._nodes[symbol] = self._float_node(symbol)
        may_be_bool = node is None and symbol not in self.sources
        # The bool in a tensor is the expression ``symbol == 1``, so its ``float`` is the symbol.
        truth = self._nodes.get(sympy.Eq(symbol, 1)) if may_be_bool else None
        if truth is not None:
            node = self._nodes[symbol] = self._graph.call_function(torch.sym_ite, (truth, 1, 0))
            value = torch.sym_ite(truth.meta["val"], 1, 0)
            node.meta.update(val=value, example_value=value)
        if node is None:
            source, value = self.sources[symbol]
            node = self._nodes[symbol] = self._placeholder(source, value)
        return node


def _annotate_after(last: fx.Node, graph: fx.Graph) -> None:
    """Write ``meta["val"]`` of the nodes after ``last``. It is computed from the values of their arguments."""
    node = last.next
    while node is not graph._root:
        args = fx.map_arg(node.args, lambda n: n.meta["val"])
        result = node.target(*args)
        node.meta.update(val=result, example_value=result)
        node = node.next


def symbolic_number(value: object) -> bool:
    """Return whether the value is a SymInt, SymFloat or SymBool."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
