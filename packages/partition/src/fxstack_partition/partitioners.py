"""The built-in partitioners. Each is a policy, a minimum cut, and the extraction of two graphs."""

from __future__ import annotations

from torch.fx import Node

from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.passes import run_passes
from fxstack_partition.extraction.passes import MIN_CUT, Cutting, text
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.mincut.network import Network, Weights, build_flow_network
from fxstack_partition.options import PartitionOptions
from fxstack_partition.policy.policy import (
    MIN_CUT_RULES,
    NECESSITIES,
    SAVE_ALL_RULES,
    SELECTIVE_TAGS,
    USER_TAGS,
    Rule,
    effective_tag,
)
from fxstack_partition.registry import register


def cut_with_rules(joint: StageGraph, rules: tuple[Rule, ...], options: PartitionOptions) -> Partition:
    """Partition by the cheapest cut that ``rules`` allow."""
    state = Cutting(joint, options, lambda facts, options: build_flow_network(facts, rules, options))
    return run_passes("partition", MIN_CUT, state, text).partition


@register("save_all")
def save_all(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Save every forward value that the backward reads. Recompute only views and sizes."""
    return cut_with_rules(joint, SAVE_ALL_RULES, options)


@register("min_cut")
def min_cut(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Save as few bytes as possible. Recompute values that are cheap and fuse."""
    return cut_with_rules(joint, MIN_CUT_RULES, options)


SAC_RULES = (
    *NECESSITIES,
    *SELECTIVE_TAGS,
    *(rule for rule in MIN_CUT_RULES if rule not in (*NECESSITIES, *USER_TAGS)),
)
WEIGHT = 16
"""A choice against a preference must save this many times the bytes of the value."""


@register("sac")
def sac(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Save and recompute according to ``options.policy`` or the tags of the graph: selective checkpointing.

    ``must_save`` and ``must_recompute`` are binding. A preference multiplies the cost of the other choice by
    ``WEIGHT``, so only a clear gain overrules it. Nodes without tag are decided as in ``min_cut``. Random numbers
    are never drawn again, even if tags say so: their results are saved instead, like inputs.

    Raises:
        ValueError: if a tag is unknown.
        InfeasibleError: if the tags allow no partition. The text names the nodes.
    """
    state = Cutting(joint, options, _sac_network)
    return run_passes("partition", MIN_CUT, state, text).partition


def _sac_network(facts: JointFacts, options: PartitionOptions) -> Network:
    """Return the network of the partitioner ``sac``.

    The tag ``prefer_save`` adds a penalty to recomputation; ``prefer_recompute`` makes saving dearer.
    """
    tags = {node: effective_tag(node, options) for node in facts.nodes[:-1]}
    weights = Weights(facts, options)

    def penalty(node: Node) -> int:
        return WEIGHT * weights.save_cost(node) if tags[node] == "prefer_save" else 0

    def dearer(node: Node) -> int:
        return WEIGHT if tags[node] == "prefer_recompute" else 1

    return build_flow_network(facts, SAC_RULES, options, penalty, factor=dearer)
