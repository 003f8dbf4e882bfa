"""The regions of one compilation: each body, traced and cut once for each kind of operands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxstack_functionalize import torch_compat
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.regions.outline import Group, Outlined, find_groups, outline
from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.torch_facts.effects import draws

REGION = "fxstack_region"
"""The key of the metadata of a graph module that is the forward or the backward of a region."""
LEAST_CALLS = 2
"""The number of calls that a region keeps at least; fewer calls are traced in line."""


class NotSharedError(Exception):
    """A call that has to be traced in line. The message says why. ``always``: whether all calls of the kind have to."""

    def __init__(self, why: str, *, always: bool = False) -> None:
        super().__init__(why)
        self.always = always


@dataclass(frozen=True, slots=True)
class TracedBody:
    """The functional or joint graph of the body of a region, with the records of its inputs and outputs."""

    stage_graph: StageGraph
    info: GraphInfo
    symbols: tuple[tuple[int, int], ...]
    """For each input after the operands: the operand and the dimension whose size it is."""
    saves: tuple[int, ...]
    """The operands whose memory eager saves for the backward."""
    saved_results: tuple[int, ...]
    """The flat outputs whose memory eager saves for the backward."""
    unflatten: Callable[[list[Any], list[Any]], Any]
    """Returns the results of the body in their structure, of the operands and the flat outputs."""


@dataclass(frozen=True, slots=True)
class Region:
    """A region for one kind of operands: a forward, and a backward if the region trains.

    ``saved``: for each saved input of the backward, the operand (negative: -1 - number) or the result of the
    forward that it is. ``tangent``: the metadata of the one tangent.
    """

    name: str
    traced: TracedBody
    forward: GraphModule
    backward: GraphModule | None = None
    saved: tuple[int, ...] = ()
    tangent: torch.Tensor | None = None

    @property
    def size(self) -> int:
        """Return the number of operators of the forward."""
        return sum(node.op == "call_function" for node in self.forward.graph.nodes)

    @property
    def draws(self) -> bool:
        """Whether the forward draws random numbers. Its partitioner may have made the forward return the state."""
        return any(
            node.target is torch_compat.run_and_save_rng_state or draws(node)
            for node in self.forward.graph.nodes
        )


@dataclass(frozen=True, slots=True)
class SharedRegion:
    """What became of a region: its name, the number of calls, the nodes of its body, and why it is not shared."""

    name: str
    calls: int
    nodes: int
    automatic: bool
    """Whether the region is a repeated part of the captured graph, not ``nested_compile_region``."""
    refusal: str | None = None


@dataclass(slots=True)
class RegionTable:
    """The regions of one compilation. Traces of the same captured graph share them.

    ``trace_body`` traces the body of a region on fake operands. ``cut`` partitions a joint graph.
    """

    trace_body: Callable[[RegionTable, GraphModule, Sequence[Any]], TracedBody]
    cut: Callable[[StageGraph], Partition]
    share: bool = True
    """Whether equal segments of captured graphs become regions."""
    regions: dict[Hashable, Region | NotSharedError] = field(default_factory=dict)
    """The regions by body and kind of operands, or the reason why the region is traced in line."""
    calls: dict[Node, str] = field(default_factory=dict)
    """The calls of regions in traces, each with the name of its region."""
    in_line: dict[Node, str] = field(default_factory=dict)
    """The calls that are traced in line, each with the reason."""
    tried: set[Node] = field(default_factory=set)
    """The calls for which a region has been made. Operands that never equal those of the last trace have none."""
    _groups: dict[GraphModule, list[Group]] = field(default_factory=dict)
    _outlined: dict[GraphModule, Outlined] = field(default_factory=dict)
    _refused: list[SharedRegion] = field(default_factory=list)

    def graph_of(self, module: GraphModule) -> GraphModule:
        """Return the graph to trace for a captured graph: with regions in place of its equal segments."""
        if not self.share:
            return module
        if module not in self._groups:
            self._groups[module] = find_groups(module)
        groups = [group for group in self._groups[module] if group.segments]
        if not groups:
            return module
        if module not in self._outlined:
            self._outlined[module] = outline(module, groups)
        return self._outlined[module].graph_module

    def is_automatic(self, node: Node) -> bool:
        """Whether the call ``node`` stands for a segment of a captured graph."""
        return any(node in outlined.calls for outlined in self._outlined.values())

    def refuse(self, node: Node, why: NotSharedError) -> bool:
        """Have the call ``node`` traced in line. Return whether the graph has changed, so that the trace must restart.

        A segment of a captured graph becomes the nodes of the captured graph again.
        """
        self.calls.pop(node, None)
        self.in_line[node] = str(why)
        for module, outlined in self._outlined.items():
            if node in outlined.calls:
                group, segment = outlined.calls[node]
                removed = group.segments if why.always or len(group.segments) <= LEAST_CALLS else [segment]
                self._refused.append(
                    SharedRegion(
                        group.name, len(removed), len(segment.nodes), automatic=True, refusal=str(why)
                    )
                )
                group.segments = [kept for kept in group.segments if kept not in removed]
                del self._outlined[module]
                for call in outlined.calls:  # the new graph has other nodes
                    self.calls.pop(call, None)
                return True
        return False

    def report(self) -> list[SharedRegion]:
        """Return the shared regions, then the refused ones."""
        automatic = {call for outlined in self._outlined.values() for call in outlined.calls}
        sizes = {region.name: region.size for region in self.regions.values() if isinstance(region, Region)}
        counts = Counter((name, node in automatic) for node, name in self.calls.items())
        shared = [
            SharedRegion(name, count, sizes[name], automatic=own) for (name, own), count in counts.items()
        ]
        return shared + self._refused
