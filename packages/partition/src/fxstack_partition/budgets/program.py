"""The integer program of ``ilp``: minimal seconds of recomputation under a cap on saved bytes.

Its variables are the saved values, the nodes that the backward computes, and the memory alive between the
stages. Without the cap, this would be the program of the minimum cut, so relaxations are nearly integral and
HiGHS (through SciPy) is fast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fxstack_partition.joint.cost import WorkModel
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.mincut.network import SINK, SOURCE, Network
from fxstack_partition.optional import scipy
from fxstack_partition.ordering.plan import make_plan
from fxstack_partition.suppressed_output import highs_silenced

MAX_BRANCHES = 100
"""Limit of branch-and-bound nodes if a gap is allowed. Unlike a time limit, it gives repeatable results."""


@dataclass
class Program:
    """An integer program under construction. ``size``: its number of variables, which is fixed; rows are added.

    Row ``i`` demands ``low[i] <= rows[i] . x``.
    """

    size: int
    rows: list[dict[int, float]]
    """One dict for each row, from the number of a variable to its coefficient."""
    low: list[float]

    def at_least(self, row: dict[int, float], bound: float) -> None:
        """Add the row ``bound <= row . x``. ``row`` maps the number of a variable to its coefficient."""
        self.rows.append(row)
        self.low.append(bound)

    def solve(self, costs: list[float], free: set[int], gap: float) -> list[bool] | None:
        """Return the cheapest assignment of 0 and 1, or None if the rows contradict each other.

        Variables in ``free`` are continuous between 0 and 1. ``gap``: relative distance from the optimum at which
        the solver may stop.
        """
        where = [(r, c) for r, row in enumerate(self.rows) for c in row]
        data = [value for row in self.rows for value in row.values()]
        coordinates = ([r for r, _ in where], [c for _, c in where])
        matrix = scipy("sparse").csr_array((data, coordinates), shape=(len(self.rows), self.size))
        optimize = scipy("optimize")
        with highs_silenced():
            result = optimize.milp(
                np.array(costs),
                integrality=np.array([0 if i in free else 1 for i in range(self.size)]),
                bounds=optimize.Bounds(0, 1),
                constraints=optimize.LinearConstraint(matrix, np.array(self.low), np.inf),
                options={"mip_rel_gap": gap} | ({"node_limit": MAX_BRANCHES} if gap else {}),
            )
        return None if result.x is None else [bool(x > 0.5) for x in result.x]


def cheapest_under(
    facts: JointFacts, network: Network, costs: WorkModel, cap: int, *, gap: float = 0.0
) -> tuple[int, ...] | None:
    """Return the saved values with the least recomputation and at most ``cap`` bytes alive between the stages.

    Return None if no choice stays under the cap. ``gap``: relative distance from the optimum that is allowed.
    """
    nodes = list(network.cuttable.values())
    program, multipliers, free = _program(facts, network, cap, costs)
    solution = program.solve(multipliers, free, gap)
    if solution is None:
        return None
    return tuple(facts.position[node] for index, node in enumerate(nodes) if solution[index])


def grain_of(cap: int) -> int:
    """Return the unit of memory in the program, in bytes: the solver's tolerances suit numbers of seven digits."""
    return max(1, cap >> 20)


def bytes_between(facts: JointFacts, saved: tuple[int, ...]) -> int:
    """Return the bytes alive between forward and backward, results included, if the forward saves ``saved``."""
    graph = facts.index_graph
    alive = _alive_anyway(facts) | make_plan(graph, saved).saved_storages(graph)
    return sum(graph.sizes[s] for s in alive)


def _alive_anyway(facts: JointFacts) -> set[int]:
    """Return the storages that are alive whatever is saved: results, and tangents that an operator reads."""
    read = [n for n in facts.tangents if any(user.op != "output" for user in n.users)]
    return {s for node in (*facts.results, *read) for s in facts.storages.occupied[node]}


_TIE = 1e-9
"""Price of saving a value, in microseconds. Of equally fast choices, the choice with fewer values wins."""


def _program(
    facts: JointFacts, network: Network, cap: int, costs: WorkModel
) -> tuple[Program, list[float], set[int]]:
    """Build the program: variables for values (saved), vertices (recomputed), storages (alive)."""
    sizes = facts.index_graph.sizes
    saves = list(network.cuttable.items())
    saved_storages = [facts.index_graph.saved_storages((facts.position[node],)) for _, node in saves]
    first_vertex = len(saves)
    storages = sorted(set().union(*saved_storages))
    first_storage = first_vertex + len(network.names)
    variable_of = {storage: first_storage + i for i, storage in enumerate(storages)}
    program = Program(first_storage + len(storages), [], [])
    index_of = {edge: index for index, (edge, _) in enumerate(saves)}
    for number, edge in enumerate(network.edges):
        row = {first_vertex + edge.start: 1.0, first_vertex + edge.end: -1.0}
        if number in index_of:
            row[index_of[number]] = 1.0
        # A value that the backward's side needs is recomputed or saved.
        program.at_least(row, 0.0)
    program.at_least({first_vertex + SINK: 1.0}, 1.0)
    program.at_least({first_vertex + SOURCE: -1.0}, 0.0)
    for index, saved_values in enumerate(saved_storages):
        for storage in saved_values:
            program.at_least({variable_of[storage]: 1.0, index: -1.0}, 0.0)
    alive_anyway = _alive_anyway(facts)
    alive_anyway_bytes = sum(sizes[s] for s in alive_anyway)
    grain = grain_of(cap)
    alive = {variable_of[s]: -float(-(-sizes[s] // grain)) for s in storages if s not in alive_anyway}
    program.at_least(alive, float(-((cap - alive_anyway_bytes) // grain)))
    multipliers = [_TIE] * first_vertex + [0.0] * (program.size - first_vertex)
    entries = {name: vertex for vertex, name in enumerate(network.names)}
    for node in network.decisions:
        # The vertex that is on the backward's side if the node is recomputed.
        recomputing_vertex = entries.get(f"{node.name}:in", entries.get(node.name))
        if recomputing_vertex is not None and node in facts.forward:
            multipliers[first_vertex + recomputing_vertex] += 1e6 * costs.cost(node).seconds
    return program, multipliers, set(range(first_vertex, program.size))
