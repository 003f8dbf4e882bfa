"""Explain why each value is saved, and the cost of each recomputed value: ``print(explain(partition(joint)))``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from fxstack_interchange import OutputKind, Partition, user_line
from fxstack_interchange.format.show import first_lines
from fxstack_partition.joint.cost import SizeModel, WorkModel
from fxstack_partition.options import PartitionOptions

_DEFAULTS = PartitionOptions()


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved value: its bytes, the line of the program that computes it, and the rule that decided."""

    name: str
    bytes: int
    line: str | None
    rule: str


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A recomputed value: the chain of nodes from a saved value to this value, and the cost of its own node."""

    name: str
    chain: tuple[str, ...]
    flops: int
    seconds: float
    line: str | None


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The values that a partition saves and recomputes, most expensive first. ``str`` returns a report."""

    saved: tuple[Saved, ...]
    recomputed: tuple[Recomputed, ...]

    def __repr__(self) -> str:
        return (
            f"<Explanation: {len(self.saved)} saved, {len(self.recomputed)} recomputed; .details() has all>"
        )

    def details(self) -> str:
        """Return each value with its size, cost and line."""
        total = sum(item.bytes for item in self.saved)
        lines = [f"saved: {len(self.saved)} values, {total:,} bytes"]
        for item in self.saved:
            lines.append(f"  {item.bytes:>14,}  {item.name}  [{item.rule}]")
            lines += [f"{'':18}{item.line}"] if item.line else []
        seconds = sum(item.seconds for item in self.recomputed)
        lines.append(f"recomputed: {len(self.recomputed)} values, {seconds * 1e6:,.0f} us estimated")
        for value in self.recomputed:
            cost = f"{value.flops:,} flops, {value.seconds * 1e6:.1f} us"
            lines.append(f"  {' -> '.join(value.chain)}  ({cost})")
            lines += [f"{'':18}{value.line}"] if value.line else []
        return "\n".join(lines)

    def __str__(self) -> str:
        return first_lines(self.details())


def explain(partition: Partition, options: PartitionOptions = _DEFAULTS) -> Explanation:
    """Return for each saved value its line, size and rule; for each recomputed value its chain and cost."""
    reasons = dict(partition.reasons)
    sizes = SizeModel(partition.forward, options)
    output: Any = partition.forward.graph_module.graph.output_node().args[0]
    specs = partition.forward.signature.outputs
    nodes = [n for n, spec in zip(output, specs, strict=True) if spec.kind is OutputKind.SAVED]
    names = [*partition.saved, *(n.name for n in nodes[len(partition.saved) :])]
    saved = [
        Saved(
            name,
            sizes.value_bytes(node.meta.get("val")),
            line_of(node),
            reasons.get(name, "chosen by the partitioner"),
        )
        for name, node in zip(names, nodes, strict=True)
    ]
    saved.sort(key=lambda item: -item.bytes)
    return Explanation(tuple(saved), tuple(_recomputed_values(partition, options)))


def _recomputed_values(partition: Partition, options: PartitionOptions) -> list[Recomputed]:
    """Return the recomputed nodes of the backward with their cost, the slowest first."""
    costs = WorkModel(partition.backward, options)
    names = set(partition.recomputed)
    values = []
    for node in partition.backward.graph_module.graph.nodes:
        if node.name in names:
            work = costs.cost(node)
            chain = _chain(node, names)
            values.append(Recomputed(node.name, chain, work.flops, work.seconds, line_of(node)))
    return sorted(values, key=lambda item: -item.seconds)


_MAX_CHAIN = 12


def _chain(node: Node, recomputed: set[str]) -> tuple[str, ...]:
    """Return names of nodes from a saved value to ``node``, through first recomputed arguments."""
    chain = [node.name]
    while node.name in recomputed and node.all_input_nodes and len(chain) < _MAX_CHAIN:
        recomputed_args = [arg for arg in node.all_input_nodes if arg.name in recomputed]
        node = (recomputed_args or node.all_input_nodes)[0]
        chain.append(node.name)
    return tuple(reversed(chain))


_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+)[^\n]*\n\s*(?P<text>[^\n]*)')
_LIBRARY = re.compile(r"(^|/)torch/")


def line_of(node: Node) -> str | None:
    """Return ``file:line: text`` of the innermost frame outside of torch.

    If all frames are of torch, take the innermost frame. None if the node has no stack trace.
    """
    trace = node.meta.get("stack_trace")
    frames = list(_FRAME.finditer(trace)) if isinstance(trace, str) else []
    for frame in reversed(frames):
        if not _LIBRARY.search(frame["file"]):
            return f"{frame['file']}:{frame['line']}: {frame['text'].strip()}"
    return user_line(node)
