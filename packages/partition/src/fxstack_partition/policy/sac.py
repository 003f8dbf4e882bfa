"""``sac``: selective activation checkpointing, by tags in the graph or by a policy from node to tag.

``must_save`` and ``must_recompute`` are binding. A preference multiplies the cost of the other choice by
``WEIGHT``, so only a clear gain overrules it. Nodes without tag are decided as in ``min_cut``. Random numbers
are never drawn again, even if tags say so: their results are saved instead, like inputs.
"""

from __future__ import annotations

from torch.fx import Node

from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.passes import run_passes
from fxstack_partition.extraction.passes import MIN_CUT, Cutting, text
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.mincut.network import Network, Weights, build
from fxstack_partition.options import PartitionOptions
from fxstack_partition.policy.policy import MIN_CUT_RULES, NECESSITIES, SELECTIVE_TAGS, USER_TAGS, wanted_tag
from fxstack_partition.registry import register

SAC_RULES = (
    *NECESSITIES,
    *SELECTIVE_TAGS,
    *(rule for rule in MIN_CUT_RULES if rule not in (*NECESSITIES, *USER_TAGS)),
)
WEIGHT = 16
"""A choice against a preference must save this many times the bytes of the value."""


@register("sac")
def sac(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Save and recompute according to ``options.policy`` or the tags of the graph.

    Raises:
        ValueError: if a tag is unknown.
        InfeasibleError: if the tags allow no partition. The text names the nodes.
    """
    state = Cutting(joint, options, _network)
    return run_passes("partition", MIN_CUT, state, text).partition


def _network(facts: JointFacts, options: PartitionOptions) -> Network:
    tags = {node: wanted_tag(node, options) for node in facts.nodes[:-1]}
    weights = Weights(facts, options)

    def penalty(node: Node) -> int:
        return WEIGHT * weights.of(node) if tags[node] == "prefer_save" else 0

    def dearer(node: Node) -> int:
        return WEIGHT if tags[node] == "prefer_recompute" else 1

    return build(facts, SAC_RULES, options, penalty, factor=dearer)
