"""Cut a joint graph into two graphs, when the saved values are known."""

from __future__ import annotations

from collections.abc import Iterable

from torch.fx import Node

from fxstack_interchange import Partition
from fxstack_interchange.passes import NothingToDo, run_passes
from fxstack_partition.extraction.passes import EXTRACT, Cutting, text
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.options import PartitionOptions
from fxstack_partition.ordering.plan import PartitionError

__all__ = ["PartitionError", "extract", "extract_quietly"]


def extract(
    facts: JointFacts,
    saved: Iterable[Node],
    reasons: Iterable[tuple[str, str]] = (),
    options: PartitionOptions | None = None,
) -> Partition:
    """Build the two graphs of a partition that saves ``saved`` and the symbols that the backward needs.

    The nodes are ordered for a low simulated peak. ``options``: None means default options. ``reasons`` are
    (node name, reason), for ``explain``.

    Raises:
        PartitionError: if the backward would recompute a node that must not run twice, or lacks an input.
    """
    state = Cutting(facts.graph, options, facts=facts, saved=tuple(saved), reasons=tuple(reasons))
    return run_passes("partition", EXTRACT, state, text).partition


def extract_quietly(facts: JointFacts, saved: Iterable[Node], options: PartitionOptions) -> Partition:
    """Extract one of many choices of a search. Observers of passes do not see it."""
    state = Cutting(facts.graph, options, facts=facts, saved=tuple(saved))
    for step in EXTRACT:
        after = step.run(state)
        state = state if isinstance(after, NothingToDo) else after
    return state.partition
