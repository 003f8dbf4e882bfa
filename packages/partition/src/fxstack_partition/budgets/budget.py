"""The partitioner ``budget``: the least recomputation that keeps a step's simulated peak within a bound.

All budgets choose from one frontier (see ``frontier``). So a smaller budget never gives a higher peak, and a
larger budget never recomputes longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.passes import Pass, run_passes
from fxstack_partition.budgets.frontier import frontier
from fxstack_partition.budgets.search import Choice
from fxstack_partition.extraction.extract import PartitionError, extract
from fxstack_partition.extraction.passes import Cutting, classify_nodes, merge_repetitions, text
from fxstack_partition.joint.cost import WorkModel
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.options import PartitionOptions
from fxstack_partition.ordering.simulate import simulate
from fxstack_partition.registry import register


class BudgetError(PartitionError):
    """No partition fits the budget. The message says by how much the best partition exceeds it."""


@register("budget")
def budget(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Recompute as little as ``options.budget`` allows, or use the memory that ``options.time_overhead`` allows.

    Without either option the budget is 0.5.

    Raises:
        BudgetError: if no partition fits the budget. The text says by how much.
    """
    return run_passes("budget", BUDGET, Budgeting(joint, options), budget_text).partition


@dataclass(frozen=True, slots=True)
class Budgeting(Cutting):
    """The state of the partitioners ``budget`` and ``ilp`` between two passes."""

    choices: tuple[Choice, ...] = ()
    """The frontier, from the least recomputation to the most; empty before ``find_frontier``."""


def find_frontier(state: Budgeting) -> Budgeting:
    """Search the choices of saved values that no other choice beats in both memory peak and recomputation.

    >>> example("find_frontier", lambda x: x.sin().cos().sin().cos())
    + # save_all: peak 72 bytes, recomputes 0.0e+00 seconds
    + # descent: peak 60 bytes, recomputes 6.0e-10 seconds
    """
    return replace(state, choices=frontier(state.joint_facts, state.effective_options))


def fit_budget(state: Budgeting) -> Budgeting:
    """Cut by the choice that recomputes least within the budget.

    >>> example("fit_budget", lambda x: x.sin().cos().sin().cos())
    + # forward graph: 1 inputs, 4 operations, 4 outputs
    + arg0_1: f32[3],  # user_input
    + sin = aten.sin(arg0_1)
    + cos = aten.cos(sin)
    + sin_1 = aten.sin(cos)
    ...
    + mul_3,  # gradient of arg0_1
    """
    return replace(state, result=partition_within(state.joint_facts, state.choices, state.effective_options))


def budget_text(state: Budgeting) -> str:
    """Return the state as text for observers of passes: as ``state_text``, with the choices as comments."""
    choices = (
        f"# {choice.label}: peak {choice.peak} bytes, recomputes {choice.seconds:.1e} seconds\n"
        for choice in state.choices
    )
    return text(state) + "".join(choices)


BUDGET: Final[tuple[Pass[Budgeting], ...]] = (
    Pass("classify_nodes", classify_nodes),
    Pass("merge_repetitions", merge_repetitions),
    Pass("find_frontier", find_frontier),
    Pass("fit_budget", fit_budget),
)


def partition_within(facts: JointFacts, choices: tuple[Choice, ...], options: PartitionOptions) -> Partition:
    """Extract the choice with the least recomputation that fits the options.

    ``choices`` is a frontier. ``compare`` computes it once and calls this function for each budget.
    """
    if options.time_overhead is not None:
        choice = _choice_within_time(facts, choices, options)
        return _extract_choice(facts, choice, options)
    limit = bytes_allowed(choices, options.budget)
    peaks = []
    for choice in choices:
        if choice.peak <= limit:
            part = _extract_choice(facts, choice, options)
            # ``worst_case`` gives symbols other values than their hints: only a simulation of the graphs sees
            # these values.
            peaks.append(simulate(part, options).peak)
            if peaks[-1] <= limit:
                return part
    best = min([*peaks, *(choice.peak for choice in choices if choice.peak > limit)])
    msg = (
        f"a peak of {limit:,} bytes cannot be met: the lowest that was found is {best:,} bytes, "
        f"{best - limit:,} more. Raise the budget, or remove must_save tags."
    )
    raise BudgetError(msg)


def _extract_choice(facts: JointFacts, choice: Choice, options: PartitionOptions) -> Partition:
    saved = (facts.nodes[index] for index in choice.saved)
    return extract(facts, saved, choice.reasons, options)


def bytes_allowed(choices: tuple[Choice, ...], fraction_or_bytes: float | None) -> int:
    """Return the bound on the simulated peak in bytes.

    A fraction counts from the lowest peak of the choices (0.0) to the highest (1.0).
    """
    bound = 0.5 if fraction_or_bytes is None else fraction_or_bytes
    if isinstance(bound, int):
        return bound
    low, high = choices[-1].peak, choices[0].peak
    return low + int(bound * (high - low))


def _choice_within_time(facts: JointFacts, choices: tuple[Choice, ...], options: PartitionOptions) -> Choice:
    """Return the last choice whose recomputation fits ``options.time_overhead``; the first choice if none fits.

    ``choices``: from the least recomputation to the most.
    """
    bound = options.time_overhead or 0.0
    step = WorkModel(facts.graph, options).seconds(facts.nodes[:-1])
    allowed = bound * step
    fitting = [choice for choice in choices if choice.seconds <= allowed]
    # If no choice fits, no choice of the frontier has a lower cost of recomputation than the first.
    return fitting[-1] if fitting else choices[0]
