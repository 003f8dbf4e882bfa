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
    """``calls``: calls that return host values and symbols, by name; ``symbols``: symbols among the names."""

    inlined: Collection[Node]
    calls: dict[str, Call]
    symbols: frozenset[str]
    known: dict[Computed, frozenset[str]] = field(default_factory=dict)

    def of_kernel(self, nodes: Iterable[Computed]) -> list[Call]:
        """Return the calls that must precede a kernel of ``nodes`` because of sizes."""
        if not self.symbols:
            return []
        names = {name for node in nodes for name in self._names(node)}
        return [self.calls[name] for name in sorted(names)]

    def of_call(self, call: Call) -> list[Call]:
        """Return the calls whose host values or symbols ``call`` takes, or needs for its operands' sizes."""
        names = {*_mentioned((call.args, call.kwargs))}
        names |= {v.name for node in call.reads for v in memory_sizes(node)}
        found = [self.calls[name] for name in sorted(names) if name in self.calls]
        return [other for other in found if other is not call]

    def _names(self, node: Computed) -> frozenset[str]:
        if node not in self.known:
            own = {v.name for v in _symbols(node)} & self.symbols
            for read in node.reads:
                if read.node in self.inlined and isinstance(read.node, Computed):
                    own |= self._names(read.node)
            self.known[node] = frozenset(own)
        return self.known[node]


def size_providers(program: Program, inlined: Collection[Node]) -> SizeProviders:
    calls: dict[str, Call] = {}
    for step in program.steps:
        if isinstance(step, HostCall):
            calls[step.name] = step
        elif isinstance(step, ExternCall):
            calls |= {output.name: step for output in step.outputs}
    found = dict(calls)
    for binding in program.bindings:
        if binding.source in calls:
            found[binding.symbol] = calls[binding.source]
    symbols = frozenset(b.symbol for b in program.bindings if b.source in calls)
    return SizeProviders(inlined, found, symbols)


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
    """Return the symbols in a tensor's shape and strides."""
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
    found = {v for e in expressions for v in e.variables}
    return {v for v in found if v.symbolic} | memory_sizes(node)
