"""Compare partitioners on a joint graph: ``print(compare(joint, ["min_cut", "budget"], budgets=[0.2]))``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fxstack_interchange import Partition, StageGraph
from fxstack_partition.api import partition
from fxstack_partition.budgets.budget import partition_within
from fxstack_partition.budgets.frontier import frontier
from fxstack_partition.extraction.merge import analyze_merged
from fxstack_partition.joint.cost import WorkModel
from fxstack_partition.options import PartitionOptions
from fxstack_partition.ordering.plan import PartitionError
from fxstack_partition.ordering.simulate import Timeline, simulate

_DEFAULTS = PartitionOptions()
HEAD = ("partitioner", "saved MB", "peak MB", "recomputed MFLOP", "step ms", "solver ms")
BUDGETED = ("budget", "ilp")
"""Partitioners that run once for each budget."""


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one partitioner. ``error`` has the message if the partitioner returned no partition.

    ``recomputed_flops`` counts nodes that run in both stages. ``solver_seconds`` is the time of the partitioner.
    """

    label: str
    saved_bytes: int
    peak: int
    recomputed_flops: int
    step_seconds: float
    solver_seconds: float
    timeline: Timeline = field(repr=False)
    partition: Partition | None = field(repr=False)
    error: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return one text for each column of ``HEAD``; for an error, the label and the message."""
        if self.error:
            return (self.label, self.error)
        return (
            self.label,
            f"{self.saved_bytes / 1e6:.3f}",
            f"{self.peak / 1e6:.3f}",
            f"{self.recomputed_flops / 1e6:.2f}",
            f"{self.step_seconds * 1e3:.3f}",
            f"{self.solver_seconds * 1e3:.1f}",
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of partitioners on one joint graph, one row each. ``str`` returns a table."""

    nodes: int
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        cells = [HEAD, *(row.cells() for row in self.rows)]
        full = [line for line in cells if len(line) == len(HEAD)]
        widths = [max(len(line[i]) for line in full) for i in range(len(HEAD))]
        widths[0] = max(len(line[0]) for line in cells)
        lines = [f"{self.nodes} nodes"]
        for line in cells:
            text = [line[0].ljust(widths[0])]
            text += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=False)]
            lines.append("  ".join(text).rstrip())
        return "\n".join(lines)


def compare(
    joint: StageGraph,
    names: Sequence[str | Callable[..., Partition]] = ("save_all", "min_cut", "budget"),
    budgets: Sequence[float | int] = (0.2, 0.5),
    options: PartitionOptions = _DEFAULTS,
) -> Comparison:
    """Run each partitioner on ``joint``, and simulate the memory and estimate the time of its partition.

    The partitioners ``budget`` and ``ilp`` run once for each of ``budgets``; if ``budgets`` is empty, they run once
    with ``options.budget``.
    """
    rows = []
    for name in names:
        label = name if isinstance(name, str) else getattr(name, "__name__", repr(name))
        bounds = (budgets or (None,)) if label in BUDGETED else (None,)
        partitioner, spent = _prepared(joint, options) if name == "budget" else (name, 0.0)
        for bound in bounds:
            row_label = label if bound is None else f"{label} {bound:g}"
            run_options = options if bound is None else replace(options, budget=bound)
            rows.append(_row(joint, partitioner, row_label, run_options, spent))
    return Comparison(len(joint.graph_module.graph.nodes), tuple(rows))


def _prepared(joint: StageGraph, options: PartitionOptions) -> tuple[Callable[..., Partition], float]:
    """Compute the frontier once for all budgets. Return a partitioner that reads it, and the seconds spent."""
    start = time.perf_counter()
    facts = analyze_merged(joint, options)
    choices = frontier(facts, options)

    def partition_from_frontier(_joint: StageGraph, options: PartitionOptions) -> Partition:
        return partition_within(facts, choices, options)

    return partition_from_frontier, time.perf_counter() - start


def _row(
    joint: StageGraph,
    name: str | Callable[..., Partition],
    label: str,
    options: PartitionOptions,
    spent: float,
) -> Row:
    """Run one partitioner and return its row.

    ``spent``: seconds of earlier preparation, which are part of ``solver_seconds``.
    """
    start = time.perf_counter()
    try:
        part = partition(joint, name, options)
    except PartitionError as error:
        return Row(label, 0, 0, 0, 0.0, 0.0, Timeline((), 0), None, str(error))
    spent += time.perf_counter() - start
    timeline = simulate(part, options)
    graphs = [(stage, WorkModel(stage, options)) for stage in (part.forward, part.backward)]
    step = sum(costs.seconds(stage.graph_module.graph.nodes) for stage, costs in graphs)
    forward_names = {node.name for node in part.forward.graph_module.graph.nodes}
    recomputed = forward_names.intersection(part.recomputed)
    costs = WorkModel(joint, options)
    flops = costs.flops(node for node in joint.graph_module.graph.nodes if node.name in recomputed)
    return Row(label, timeline.saved_bytes, timeline.peak, flops, step, spent, timeline, part)
