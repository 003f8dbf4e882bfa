"""``budget``: the least recomputation that keeps a step's simulated peak within a bound.

All budgets choose from one frontier (see ``frontier``), so a smaller budget never has a higher peak, and a
larger budget never recomputes longer.
"""

from __future__ import annotations

from fxstack_interchange import Partition, StageGraph
from fxstack_partition.budgets.frontier import frontier
from fxstack_partition.budgets.search import Choice
from fxstack_partition.budgets.simulate import simulate
from fxstack_partition.extraction.extract import PartitionError, extract
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.joint.merge import analyze_merged
from fxstack_partition.joint.work import WorkModel
from fxstack_partition.options import PartitionOptions
from fxstack_partition.registry import register


class BudgetError(PartitionError):
    """No partition fits the budget. The message says by how much the best partition exceeds it."""


@register("budget")
def budget(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Recompute as little as ``options.budget`` or ``options.time_overhead`` allow (default: budget 0.5).

    Raises:
        BudgetError: if no partition fits the budget. The text says by how much.
    """
    facts = analyze_merged(joint, options)
    return partition_within(facts, frontier(facts, options), options)


def partition_within(facts: JointFacts, choices: tuple[Choice, ...], options: PartitionOptions) -> Partition:
    """Extract the choice that fits. ``choices`` is a frontier, which may serve many budgets."""
    if options.time_overhead is not None:
        choice = _within_time(facts, choices, options)
        return _extracted(facts, choice, options)
    limit = bytes_allowed(choices, options.budget)
    peaks = []
    for choice in choices:
        if choice.peak <= limit:
            part = _extracted(facts, choice, options)
            # ``worst_case`` gives symbols other values than their hints: only a simulation of the graphs sees
            # them.
            peaks.append(simulate(part, options).peak)
            if peaks[-1] <= limit:
                return part
    best = min([*peaks, *(choice.peak for choice in choices if choice.peak > limit)])
    msg = (
        f"a peak of {limit:,} bytes cannot be met: the lowest that was found is {best:,} bytes, "
        f"{best - limit:,} more. Raise the budget, or remove must_save tags."
    )
    raise BudgetError(msg)


def _extracted(facts: JointFacts, choice: Choice, options: PartitionOptions) -> Partition:
    saved = (facts.nodes[place] for place in choice.saved)
    return extract(facts, saved, choice.reasons, options)


def bytes_allowed(choices: tuple[Choice, ...], wanted: float | None) -> int:
    """Return the bound on the simulated peak in bytes."""
    wanted = 0.5 if wanted is None else wanted
    if isinstance(wanted, int):
        return wanted
    low, high = choices[-1].peak, choices[0].peak
    return low + int(wanted * (high - low))


def _within_time(facts: JointFacts, choices: tuple[Choice, ...], options: PartitionOptions) -> Choice:
    bound = options.time_overhead or 0.0
    step = WorkModel(facts.graph, options).seconds(facts.nodes[:-1])
    allowed = bound * step
    fitting = [choice for choice in choices if choice.seconds <= allowed]
    # The first choice recomputes least. If it exceeds the bound, only views and casts could be saved.
    return fitting[-1] if fitting else choices[0]
