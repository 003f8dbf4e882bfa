"""The built-in partitioners. Each is a policy, a minimum cut, and the extraction of two graphs."""

from __future__ import annotations

from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.passes import run_passes
from fxstack_partition.extraction.passes import MIN_CUT, Cutting, text
from fxstack_partition.mincut.network import build
from fxstack_partition.options import PartitionOptions
from fxstack_partition.policy.policy import MIN_CUT_RULES, SAVE_ALL_RULES, Rule
from fxstack_partition.registry import register


def cut_with_rules(joint: StageGraph, rules: tuple[Rule, ...], options: PartitionOptions) -> Partition:
    """Partition by the cheapest cut that ``rules`` allow."""
    state = Cutting(joint, options, lambda facts, options: build(facts, rules, options))
    return run_passes("partition", MIN_CUT, state, text).partition


@register("save_all")
def save_all(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Save every forward value that the backward reads. Recompute only views and sizes."""
    return cut_with_rules(joint, SAVE_ALL_RULES, options)


@register("min_cut")
def min_cut(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Save as few bytes as possible. Recompute values that are cheap and fuse."""
    return cut_with_rules(joint, MIN_CUT_RULES, options)
