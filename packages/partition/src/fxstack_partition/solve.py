"""Minimum-cut solvers by name.

Which of several minimum cuts is returned is part of the contract: the one nearest to the sink (the smallest
sink side), which is unique, so that equal networks give equal cuts whatever the algorithm, the process or the
hash seed. It is also the one that recomputes least.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import networkx as nx
from networkx.algorithms import flow

from fxstack_partition.network import SINK, SOURCE, Network

if TYPE_CHECKING:
    from torch.fx import Node

Solver = Callable[[Network], frozenset[str]]
"""Takes a network and returns the vertices on the sink side of the minimum cut nearest to the sink."""


class InfeasibleError(ValueError):
    """Rules contradict each other: some value can be neither saved nor recomputed."""


def networkx_solver(network: Network) -> frozenset[str]:
    """Solve with networkx's preflow-push: the model, and the oracle of other solvers."""
    bounded: nx.DiGraph[str] = nx.DiGraph()
    for start, end, data in network.graph.edges(data=True):
        bounded.add_edge(start, end, capacity=data.get("capacity", network.infinite))
    bounded.add_nodes_from((SOURCE, SINK))
    residual = flow.preflow_push(bounded, SOURCE, SINK, value_only=True)
    if residual.graph["flow_value"] >= network.infinite:
        raise InfeasibleError(_contradiction(network))
    return _sink_side(residual)


def _sink_side(residual: Any) -> frozenset[str]:
    """Return every vertex from which the sink can be reached through unsaturated edges."""
    found = {SINK}
    pending = [SINK]
    while pending:
        vertex = pending.pop()
        for before, edge in residual.pred[vertex].items():
            if before not in found and edge["flow"] < edge["capacity"]:
                found.add(before)
                pending.append(before)
    return frozenset(found)


def _contradiction(network: Network) -> str:
    fixed: nx.DiGraph[str] = nx.DiGraph()
    edges = network.graph.edges(data=True)
    fixed.add_edges_from((a, b) for a, b, data in edges if "capacity" not in data)
    fixed.add_nodes_from((SOURCE, SINK))
    path = nx.shortest_path(fixed, SOURCE, SINK)
    return (
        "the rules leave no way to partition: along " + " -> ".join(path[1:-1]) + " every value is "
        "both impossible to save and impossible to recompute. Remove a recompute tag or a rule."
    )


SOLVERS: dict[str, Solver] = {"networkx": networkx_solver}
"""Every solver by name; ``PartitionOptions.solver`` picks one."""


def minimum_cut(network: Network, solver: str) -> tuple[Node, ...]:
    """Return the nodes to save, in the order of the joint graph.

    Raises:
        LookupError: no solver has this name.
        InfeasibleError: the rules contradict each other.
    """
    if solver not in SOLVERS:
        msg = f"no minimum-cut solver is called {solver!r}; known are {', '.join(sorted(SOLVERS))}"
        raise LookupError(msg)
    sink_side = SOLVERS[solver](network)
    return tuple(
        node
        for (start, end), node in network.cuttable.items()
        if start not in sink_side and end in sink_side
    )
