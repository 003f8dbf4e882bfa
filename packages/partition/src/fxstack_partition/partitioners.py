"""The built-in partitioners. Each is a policy, a minimum cut, and the extraction of two graphs."""

from __future__ import annotations

from fxstack_interchange import Partition, StageGraph
from fxstack_partition.extraction.extract import extract
from fxstack_partition.joint.merge import analyze_merged
from fxstack_partition.mincut.network import build
from fxstack_partition.mincut.solve import minimum_cut
from fxstack_partition.options import PartitionOptions
from fxstack_partition.policy.policy import MIN_CUT_RULES, SAVE_ALL_RULES, Rule
from fxstack_partition.registry import register


def cut_with_rules(joint: StageGraph, rules: tuple[Rule, ...], options: PartitionOptions) -> Partition:
    """Partition by the cheapest cut that ``rules`` allow."""
    facts = analyze_merged(joint, options)
    network = build(facts, rules, options)
    saved = minimum_cut(network, options.solver)
    return extract(facts, saved, network.reasons, options)


@register("save_all")
def save_all(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Save every forward value that the backward reads. Recompute only views and sizes."""
    return cut_with_rules(joint, SAVE_ALL_RULES, options)


@register("min_cut")
def min_cut(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Save as few bytes as possible. Recompute values that are cheap and fuse."""
    return cut_with_rules(joint, MIN_CUT_RULES, options)
