"""Minimum cuts of one network under many prices of recomputation.

The network is built once. A rate says how many bytes a second of recomputation is worth. Bisection finds the
rates at which the cut changes, between recomputing everything and recomputing nothing (the lower convex hull
of bytes and seconds: Eisner and Severance, Mathematical Techniques for Efficient Record Segmentation, 1976).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cached_property

from torch.fx import Node

from fxstack_partition.joint.cost import WorkModel
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.joint.ops import OpKind
from fxstack_partition.joint.rng_replay import STATE_BYTES
from fxstack_partition.mincut.network import BYTE, FUSIBLE, Edge, build_flow_network
from fxstack_partition.mincut.solve import minimum_cut
from fxstack_partition.options import PartitionOptions
from fxstack_partition.policy.policy import Rule, Verdict

_CAPACITY_SUM = 1 << 28
"""Capacities are scaled to this sum, so that solvers with 32-bit numbers need one round."""


class PricedNetwork:
    """A flow network that is built once and cut at many exchange rates of seconds and bytes."""

    def __init__(
        self, facts: JointFacts, rules: tuple[Rule, ...], options: PartitionOptions, costs: WorkModel
    ) -> None:
        self._facts = facts
        self._solver = options.solver
        self._costs = costs
        self.network = build_flow_network(
            facts, rules, options, lambda node: int(node in facts.forward), traffic=False
        )

    @cached_property
    def rankings(self) -> tuple[tuple[Node, ...], ...]:
        """Return two orders of the nodes that may be recomputed and do not fuse: by seconds per byte, and by seconds."""
        facts = self._facts
        graph, decisions = facts.index_graph, self.network.decisions
        ranked = []
        for node in self.network.charged.values():
            if facts.kinds[node] in FUSIBLE or decisions[node].verdict is not Verdict.EITHER:
                continue
            index = facts.position[node]
            seconds = self._costs.cost(node).seconds
            ranked.append((seconds / (graph.allocated_bytes[index] + 1), seconds, index))
        by_seconds = sorted(ranked, key=lambda item: item[1:])
        return tuple(tuple(graph.nodes[item[-1]] for item in each) for each in (sorted(ranked), by_seconds))

    def cut(
        self, rate: float, granted: Collection[int] = (), barred: Collection[Node] = ()
    ) -> tuple[int, ...]:
        """Return the values to save if one second of recomputation costs as much as ``rate`` saved bytes.

        ``granted``: values that cost almost nothing to save (checkpoints). ``barred``: nodes that must not be
        recomputed.
        """
        network, costs = self.network, self._costs
        multipliers: dict[int, int] = {}
        uncuttable = []
        for index, node in network.charged.items():
            if node in barred:
                uncuttable.append(index)
                continue
            # The replay of a random node needs the saved state of the generator.
            state_bytes = STATE_BYTES * (self._facts.kinds[node] is OpKind.RANDOM)
            multipliers[index] = int(BYTE * (rate * costs.cost(node).seconds + state_bytes))
        for index, node in network.cuttable.items():
            is_granted = self._facts.position[node] in granted
            multipliers[index] = 1 if is_granted else network.edges[index].capacity or 1
        total = sum(multipliers.values())
        scale = max(1, -(-total // _CAPACITY_SUM))
        edges = list(network.edges)
        for index, price in multipliers.items():
            start, end, _ = edges[index]
            edges[index] = Edge(start, end, max(price // scale, 1 if price else 0))
        for index in uncuttable:
            edges[index] = Edge(*edges[index][:2], None)
        saved = minimum_cut(replace(network, edges=tuple(edges)), self._solver)
        return tuple(self._facts.position[node] for node in saved)


def sweep_rates(
    network: PricedNetwork, weigh: Callable[[tuple[int, ...]], tuple[float, float]], max_cuts: int
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield at most ``max_cuts`` pairs (rate, saved values) along the convex hull of bytes and seconds.

    The first two rates are the extremes; then the widest gap is divided. ``weigh`` returns the bytes and the seconds
    of a choice.
    """
    ends = [(rate, network.cut(rate)) for rate in (0.0, _NO_RECOMPUTATION_RATE)]
    yield from ends
    points = [(*weigh(saved), saved) for _, saved in ends]
    gaps = [(points[0], points[1])]
    for _ in range(max_cuts - len(ends)):
        if not gaps:
            return
        low, high = gaps.pop(0)
        more, fewer = high[0] - low[0], low[1] - high[1]
        if more <= 0 or fewer <= 0:
            continue
        rate = more / fewer
        saved = network.cut(rate)
        if saved in (low[2], high[2]):
            continue
        yield rate, saved
        point = (*weigh(saved), saved)
        gaps += [(low, point), (point, high)]
        gaps.sort(key=lambda gap: -abs((gap[1][0] - gap[0][0]) * (gap[0][1] - gap[1][1])))


_NO_RECOMPUTATION_RATE = 1e13
"""Exchange rate in bytes per second at which only nodes without cost are recomputed."""
