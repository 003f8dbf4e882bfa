"""The integer program of saving and recomputing: minimal seconds of recomputation under a cap on bytes.

Its variables are the saved values, the nodes that the backward computes, and the memory alive between the
stages. Without the cap, the program is that of the minimum cut, so relaxations are nearly integral and HiGHS
(through SciPy) is fast.
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
"""If a gap is allowed, the search ends after this many nodes. Unlike a time limit, this is repeatable."""


@dataclass
class Program:
    """Rows of an integer program under construction: ``low <= row . x``."""

    size: int
    rows: list[dict[int, float]]
    low: list[float]

    def at_least(self, row: dict[int, float], bound: float) -> None:
        self.rows.append(row)
        self.low.append(bound)

    def solve(self, costs: list[float], free: set[int], gap: float) -> list[bool] | None:
        """Return the cheapest 0-1 assignment; None if there is none. ``free`` variables are continuous."""
        where = [(r, c) for r, row in enumerate(self.rows) for c in row]
        data = [value for row in self.rows for value in row.values()]
        coordinates = ([r for r, _ in where], [c for _, c in where])
        matrix = scipy("sparse").csr_array((data, coordinates), shape=(len(self.rows), self.size))
        optimize = scipy("optimize")
        with highs_silenced():
            found = optimize.milp(
                np.array(costs),
                integrality=np.array([0 if i in free else 1 for i in range(self.size)]),
                bounds=optimize.Bounds(0, 1),
                constraints=optimize.LinearConstraint(matrix, np.array(self.low), np.inf),
                options={"mip_rel_gap": gap} | ({"node_limit": MAX_BRANCHES} if gap else {}),
            )
        return None if found.x is None else [bool(x > 0.5) for x in found.x]


def cheapest_under(
    facts: JointFacts, network: Network, costs: WorkModel, cap: int, *, gap: float = 0.0
) -> tuple[int, ...] | None:
    """Return the values to save so that at most ``cap`` bytes are alive between the stages, or None.

    ``gap``: the relative distance of the seconds from the optimum that is allowed.
    """
    nodes = list(network.cuttable.values())
    program, multipliers, free = _program(facts, network, cap, costs)
    solution = program.solve(multipliers, free, gap)
    if solution is None:
        return None
    return tuple(facts.position[node] for index, node in enumerate(nodes) if solution[index])


def grain_of(cap: int) -> int:
    """Return the bytes that count as one: the solver's tolerances are made for numbers of seven digits."""
    return max(1, cap >> 20)


def bytes_between(facts: JointFacts, saved: tuple[int, ...]) -> int:
    """Return the bytes alive between forward and backward."""
    graph = facts.index_graph
    alive = _alive_anyway(facts) | make_plan(graph, saved).saved_storages(graph)
    return sum(graph.sizes[s] for s in alive)


def _alive_anyway(facts: JointFacts) -> set[int]:
    """Return the storages of results, and of tangents that an operator reads."""
    read = [n for n in facts.tangents if any(user.op != "output" for user in n.users)]
    return {s for node in (*facts.results, *read) for s in facts.storages.occupied[node]}


_TIE = 1e-9
"""The price of saving a value, beside microseconds: of equally fast choices take that with fewer values."""


def _program(
    facts: JointFacts, network: Network, cap: int, costs: WorkModel
) -> tuple[Program, list[float], set[int]]:
    """Build the program: variables for values (saved), vertices (recomputed), storages (alive)."""
    sizes = facts.index_graph.sizes
    saves = list(network.cuttable.items())
    kept = [facts.index_graph.saved_storages((facts.position[node],)) for _, node in saves]
    first_vertex = len(saves)
    storages = sorted(set().union(*kept))
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
    for index, saved_values in enumerate(kept):
        for storage in saved_values:
            program.at_least({variable_of[storage]: 1.0, index: -1.0}, 0.0)
    always = _alive_anyway(facts)
    held = sum(sizes[s] for s in always)
    grain = grain_of(cap)
    alive = {variable_of[s]: -float(-(-sizes[s] // grain)) for s in storages if s not in always}
    program.at_least(alive, float(-((cap - held) // grain)))
    multipliers = [_TIE] * first_vertex + [0.0] * (program.size - first_vertex)
    entries = {name: vertex for vertex, name in enumerate(network.names)}
    for node in network.decisions:
        # The vertex that is on the backward's side if the node is recomputed.
        again = entries.get(f"{node.name}:in", entries.get(node.name))
        if again is not None and node in facts.forward:
            multipliers[first_vertex + again] += 1e6 * costs.cost(node).seconds
    return program, multipliers, set(range(first_vertex, program.size))
