"""``budget`` beside ``ilp``: estimated seconds of recomputation at equal budgets:
``python yardstick.py [--markdown]``.

The graphs are the small programs of the tests and those of the corpus that ``ilp`` takes.
"""

from __future__ import annotations

import itertools
import sys
from functools import partial
from pathlib import Path

from fxstack_partition import PartitionError, PartitionOptions, corpus, partition
from fxstack_partition.joint.cost import WorkModel

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[3] / "testing"))

from typing import TYPE_CHECKING

from joint_programs import PROGRAMS
from joints import trace_joint
from result_tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxstack_interchange import StageGraph

BUDGETS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
FROM_CORPUS = ("softmaxes", "mlp_symbolic")


def graphs() -> Iterator[tuple[str, StageGraph]]:
    for name, (fn, inputs) in PROGRAMS.items():
        yield name, trace_joint(fn, *inputs())
    for name in FROM_CORPUS:
        yield name, corpus.load(name)


def again(joint: StageGraph, name: str, budget: float) -> float | None:
    """Seconds of what forward and backward both run; None where there is no partition."""
    try:
        part = partition(joint, name, PartitionOptions(budget=budget))
    except PartitionError:
        return None
    ran = {n.name for n in part.forward.graph_module.graph.nodes}.intersection(part.recomputed)
    costs = WorkModel(joint, PartitionOptions())
    return costs.seconds(n for n in joint.graph_module.graph.nodes if n.name in ran)


def main() -> None:
    table = Table("graph", *(f"{budget:g}" for budget in BUDGETS))
    solved = within = better = 0
    for name, joint in graphs():
        cells = []
        for budget in BUDGETS:
            ours, best = (again(joint, each, budget) for each in ("budget", "ilp"))
            if ours is None or best is None:
                cells.append("-")
                continue
            solved += 1
            within += ours <= 1.05 * best + 1e-12
            better += ours < best - 1e-12
            cells.append(f"{ours * 1e6:.2f} / {best * 1e6:.2f}")
        table.row(name, *cells)
    print(f"\nmicroseconds of budget / ilp; within 5% in {within} of {solved}, better in {better}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = []
        graphs = partial(itertools.islice, graphs(), 1)
    main()
