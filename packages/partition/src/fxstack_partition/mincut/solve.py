"""Minimum-cut solvers, registered by name.

Every solver returns the minimum cut nearest to the sink (the smallest sink side). This cut is unique, so
equal networks give equal cuts for all algorithms, processes and hash seeds. This cut also recomputes the fewest nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch.fx import Node

from fxstack_partition.mincut.network import SINK, SOURCE, Network
from fxstack_partition.optional import networkx, scipy

Solver = Callable[[Network], frozenset[int]]
"""A function from a network to the vertices on the sink side of the minimum cut nearest to the sink."""


class InfeasibleError(ValueError):
    """The rules contradict each other: a value on the path can be neither saved nor recomputed."""


def networkx_solver(network: Network) -> frozenset[int]:
    """Solve with networkx's preflow-push. Tests compare other solvers with this one."""
    nx = networkx()
    bounded = nx.DiGraph()
    for start, end, capacity in network.edges:
        bounded.add_edge(start, end, capacity=network.infinite if capacity is None else capacity)
    bounded.add_nodes_from((SOURCE, SINK))
    residual = nx.algorithms.flow.preflow_push(bounded, SOURCE, SINK, value_only=True)
    if residual.graph["flow_value"] >= network.infinite:
        raise InfeasibleError(_contradiction(network))
    return _sink_side(residual)


def _sink_side(residual: Any) -> frozenset[int]:
    """Return every vertex from which a path of unsaturated edges leads to the sink."""
    reached = {SINK}
    pending = [SINK]
    while pending:
        vertex = pending.pop()
        for predecessor, edge in residual.pred[vertex].items():
            if predecessor not in reached and edge["flow"] < edge["capacity"]:
                reached.add(predecessor)
                pending.append(predecessor)
    return frozenset(reached)


def scipy_solver(network: Network) -> frozenset[int]:
    """Solve with SciPy's Dinic algorithm. Its capacities have 32 bits, so larger capacities need several rounds.

    A round routes the residual capacities in units of ``2**shift``. Afterwards at most one unit per edge
    remains, so the next, finer round has small numbers again. The result is exact. (Capacity scaling: Ahuja,
    Magnanti and Orlin, Network Flows, 7.3.)
    """
    sparse, csgraph = scipy("sparse"), scipy("sparse.csgraph")
    count = len(network.names)
    starts, ends = (np.array([e[i] for e in network.edges], dtype=np.int32) for i in (0, 1))
    fixed = np.array([edge.capacity is None for edge in network.edges], dtype=bool)
    if _reaches_sink(sparse.csr_array((fixed.astype(np.int8), (starts, ends)), shape=(count, count))):
        raise InfeasibleError(_contradiction(network))
    limit = network.infinite
    capacities = np.array(
        [limit if e.capacity is None else e.capacity for e in network.edges], dtype=np.int64
    )
    residual = sparse.csr_array((capacities, (starts, ends)), shape=(count, count))
    bits = max(1, _ROUND_BITS - len(network.edges).bit_length())
    shift = max(0, limit.bit_length() - _ROUND_BITS)
    while True:
        scaled = residual.copy()
        scaled.data = np.minimum(residual.data >> shift, 1 << _ROUND_BITS).astype(np.int32)
        routed = csgraph.maximum_flow(sparse.csr_matrix(scaled), SOURCE, SINK).flow.astype(np.int64)
        residual = sparse.csr_array(residual - routed * (1 << shift))
        if shift == 0:
            break
        shift = max(0, shift - bits)
    residual.eliminate_zeros()
    backwards = sparse.csr_array(residual.T)
    order = csgraph.breadth_first_order(backwards, SINK, return_predecessors=False)
    return frozenset(order.tolist())


_ROUND_BITS = 29
"""Bits of a capacity in one round, so that sums of residuals fit into SciPy's 32 bits."""


def _reaches_sink(edges: Any) -> bool:
    """Whether a path of edges with remaining capacity leads from the source to the sink."""
    edges.eliminate_zeros()
    return SINK in scipy("sparse.csgraph").breadth_first_order(edges, SOURCE, return_predecessors=False)


def _contradiction(network: Network) -> str:
    """Return the message of InfeasibleError. It names the nodes of an uncuttable path from source to sink."""
    nx = networkx()
    fixed = nx.DiGraph()
    fixed.add_edges_from((edge.start, edge.end) for edge in network.edges if edge.capacity is None)
    fixed.add_nodes_from((SOURCE, SINK))
    path = nx.shortest_path(fixed, SOURCE, SINK)
    names = [network.names[vertex].partition(":")[0] for vertex in path[1:-1]]
    return (
        "the rules leave no way to partition: along " + " -> ".join(dict.fromkeys(names)) + " every "
        "value is both impossible to save and impossible to recompute. Remove a recompute tag or a rule."
    )


SOLVERS: dict[str, Solver] = {"networkx": networkx_solver, "scipy": scipy_solver}
"""Every solver by name. ``PartitionOptions.solver`` selects one."""


def minimum_cut(network: Network, solver: str) -> tuple[Node, ...]:
    """Return the nodes that the cut saves, in the order of the joint graph.

    Raises:
        LookupError: if no solver has this name.
        InfeasibleError: if the rules contradict each other.
    """
    if solver not in SOLVERS:
        msg = f"no minimum-cut solver is called {solver!r}; known are {', '.join(sorted(SOLVERS))}"
        raise LookupError(msg)
    sink_side = SOLVERS[solver](network)
    return tuple(
        node
        for index, node in network.cuttable.items()
        if network.edges[index].start not in sink_side and network.edges[index].end in sink_side
    )
