"""Sizes that calls return (``nonzero``, ``item``): find the kernels and calls that must wait for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from fxstack_inductor.ir.expr import Expr, Var
from fxstack_inductor.ir.nodes import Computed, ExternCall, Index, Indirect, Node, Read
from fxstack_inductor.lower.node_queries import leaves
from fxstack_inductor.lower.program import HostCall, HostValue, Program

Call = ExternCall | HostCall


@dataclass
class SizeProviders:
    """Calls that return host values and symbols, by name; ``symbols`` are the names that are size symbols."""

    inlined: Collection[Node]
    calls: dict[str, Call]
    """Calls by the name of each result and of each symbol that they determine."""
    symbols: frozenset[str]
    known: dict[Computed, frozenset[str]] = field(default_factory=dict)
    """Names that a kernel of each tensor needs, computed once."""

    def of_kernel(self, nodes: Iterable[Computed]) -> list[Call]:
        """Return the calls that must run before a kernel of ``nodes``, because they return sizes that the
        kernel needs.
        """
        if not self.symbols:
            return []
        names = {name for node in nodes for name in self._names(node)}
        return [self.calls[name] for name in sorted(names)]

    def of_call(self, call: Call) -> list[Call]:
        """Return the calls that compute host values or symbols for the arguments of ``call``, or for the
        sizes of its operands.
        """
        names = {*_mentioned((call.args, call.kwargs))}
        names |= {v.name for node in call.reads for v in memory_sizes(node)}
        calls = [self.calls[name] for name in sorted(names) if name in self.calls]
        return [other for other in calls if other is not call]

    def _names(self, node: Computed) -> frozenset[str]:
        """Return the symbols that computing ``node`` needs, through inlined tensors."""
        if node not in self.known:
            names = {v.name for v in _symbols(node)} & self.symbols
            for read in node.reads:
                if read.node in self.inlined and isinstance(read.node, Computed):
                    names |= self._names(read.node)
            self.known[node] = frozenset(names)
        return self.known[node]


def size_providers(program: Program, inlined: Collection[Node]) -> SizeProviders:
    """Return the calls of ``program`` that return sizes, by the names of their results and of their symbols."""
    calls: dict[str, Call] = {}
    for step in program.steps:
        if isinstance(step, HostCall):
            calls[step.name] = step
        elif isinstance(step, ExternCall):
            calls |= {output.name: step for output in step.outputs}
    by_name = dict(calls)
    for binding in program.bindings:
        if binding.source in calls:
            by_name[binding.symbol] = calls[binding.source]
    symbols = frozenset(b.symbol for b in program.bindings if b.source in calls)
    return SizeProviders(inlined, by_name, symbols)


def _mentioned(value: object) -> list[str]:
    """Return the names of host values and symbols in the arguments of a call."""
    names = []
    for leaf in leaves(value):
        if isinstance(leaf, HostValue):
            names.append(leaf.name)
        elif isinstance(leaf, Expr):
            names += [v.name for v in leaf.variables]
    return names


def memory_sizes(node: Node) -> set[Var]:
    """Return the variables of symbolic sizes in a tensor's shape and strides."""
    sizes = {v for s in (*node.shape, *node.layout.stride) for v in s.variables}
    return {v for v in sizes if v.symbolic}


def _symbols(node: Computed) -> set[Var]:
    """Return the symbols that a kernel of ``node`` may need: for memory, loops, coordinates, bounds."""
    expressions: list[Expr] = [*getattr(node, "ranges", ())]
    for part in node.parts:
        match part:
            case Index(expr):
                expressions.append(expr)
            case Read(source, coords):
                expressions += [c.size if isinstance(c, Indirect) else c for c in coords]
                expressions += [*source.shape, *source.layout.stride]
            case _:
                pass
    variables = {v for e in expressions for v in e.variables}
    return {v for v in variables if v.symbolic} | memory_sizes(node)
