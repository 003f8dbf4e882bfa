"""Our partitioners and torch's on the corpus: saved bytes, simulated peak, recomputed operations, time.

    python packages/partition/benchmarks/incumbent.py [--budgets] [--markdown] [GRAPH ...]

torch's are its default, its min-cut, and (with ``--budgets``) its min-cut at activation memory budgets; ours are
simulated and timed in the same way, on the same joint graphs.
"""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "testing"))
from result_tables import Table
from torch._functorch import config
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.utils.flop_counter import flop_registry

from fxstack_partition import PartitionOptions, compare, corpus, from_partition_fn, simulate
from fxstack_partition.budgets.budget import partition_within
from fxstack_partition.budgets.frontier import frontier
from fxstack_partition.extraction.merge import analyze_merged
from fxstack_partition.joint.cost import WorkModel

BUDGETS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


def _at_budget(joint, options, budget):
    with config.patch(activation_memory_budget=budget):
        return from_partition_fn(min_cut_rematerialization_partition, check=False)(joint, options)


def row(joint, name, options=PartitionOptions()):  # noqa: B008 - frozen
    return compare(joint, [name], (), options).rows[0]


def defaults(names: list[str]) -> None:
    torch_default = from_partition_fn(default_partition, check=False)
    torch_min_cut = from_partition_fn(min_cut_rematerialization_partition, check=False)
    columns = "nodes", "torch default", "torch min-cut", "save_all", "min_cut", "fxstack / better of torch"
    table = Table("graph", *columns)
    logs = []
    for name in names:
        joint = corpus.load(name)
        rows = [row(joint, p) for p in (torch_default, torch_min_cut, "save_all", "min_cut")]
        cells = [
            f"{r.saved_bytes / 1e6:.2f} / {r.peak / 1e6:.2f} / {r.solver_seconds * 1e3:.0f}" for r in rows
        ]
        ratio = rows[3].peak / min(rows[0].peak, rows[1].peak)
        logs.append(math.log(ratio))
        nodes = len(joint.graph_module.graph.nodes)
        table.row(name, nodes, *cells, f"{ratio:.3f}")
    print(f"\ngeometric mean of the peaks' ratios: {math.exp(sum(logs) / len(logs)):.3f}\n")


@dataclass(frozen=True)
class Point:
    """One partition: simulated peak, recomputed operations of products and of all, estimated seconds of them."""

    saved: int
    peak: int
    products: int
    flops: int
    seconds: float

    def no_more_work_than(self, other: Point) -> bool:
        """Whether it recomputes no more, in products and in estimated time."""
        return self.products <= other.products and self.seconds <= other.seconds * 1.000001


def is_product(node) -> bool:
    """Whether a node is a matrix product, a convolution or attention."""
    return getattr(node.target, "overloadpacket", None) in flop_registry


def measured(joint, part, saved: int, peak: int) -> Point:
    """The work that ``part`` repeats: nodes that both of its graphs run, but for conversions of what is saved."""
    costs = WorkModel(joint, PartitionOptions())
    first = {n.name for n in part.forward.graph_module.graph.nodes}
    ran = set(part.recomputed)
    nodes = [n for n in joint.graph_module.graph.nodes if n.name in first and n.name in ran]
    products = [n for n in nodes if is_product(n)]
    return Point(saved, peak, costs.flops(products), costs.flops(nodes), costs.seconds(nodes))


def ours(joint) -> list[Point]:
    """Every point of our curves, counted in seconds and in products, each cut and simulated."""
    points = []
    for cost in ("seconds", "products"):
        options = PartitionOptions(budget=1.0, cost=cost)
        facts = analyze_merged(joint, options)
        for choice in frontier(facts, options):
            part = partition_within(facts, (choice,), options)
            step = simulate(part)
            points.append(measured(joint, part, step.saved_bytes, step.peak))
    return points


def budgets(names: list[str]) -> None:
    """torch at each budget, and the lowest peak on our curve among points that recompute no more."""
    table = Table("graph", *(f"{budget:g}" for budget in BUDGETS))
    logs, dominated = [], []
    for name in names:
        joint = corpus.load(name)
        mine = ours(joint)
        cells = []
        for budget in BUDGETS:
            part = _at_budget(joint, PartitionOptions(), budget)
            step = simulate(part)
            theirs = measured(joint, part, step.saved_bytes, step.peak)
            lowest = min(p.peak for p in mine if p.no_more_work_than(theirs))
            ratio = lowest / theirs.peak
            logs.append(math.log(ratio))
            if ratio > 1:
                dominated.append(f"{name} at {budget:g}")
            sizes = f"{theirs.saved / 1e6:.3f} / {theirs.peak / 1e6:.3f}"
            work = f"{theirs.products / 1e6:.0f}"
            cells.append(f"{sizes} / {work} → {lowest / 1e6:.3f} ({ratio:.3f})")
        table.row(name, *cells)
    print(f"\ngeometric mean of the ratios: {math.exp(sum(logs) / len(logs)):.3f}")
    print(f"{len(dominated)} of {len(logs)} where torch peaks lower with no less work: {dominated}")


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore")
    names = [a for a in arguments if not a.startswith("--")] or list(corpus.names())
    analyze_merged(corpus.load(names[0]), PartitionOptions())  # so that no first run pays for imports
    (budgets if "--budgets" in arguments else defaults)(names)


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["mlp"]
    main(sys.argv[1:])
