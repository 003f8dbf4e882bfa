"""``sac``: selective activation checkpointing, by tags in the graph or by a policy from node to tag.

``must_save`` and ``must_recompute`` are obeyed. A preference makes the other choice ``WEIGHT`` times as dear as saving
the value, so only a clear gain overrules it. What has no tag is decided as ``min_cut`` decides. Random numbers are
never drawn again, whatever the tags say: their results are saved instead, as are inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_partition.extraction.extract import extract
from fxstack_partition.joint.merge import analyze_merged
from fxstack_partition.mincut.network import Weights, build
from fxstack_partition.mincut.solve import minimum_cut
from fxstack_partition.policy.policy import MIN_CUT_RULES, NECESSITIES, SELECTIVE_TAGS, USER_TAGS, wanted_tag
from fxstack_partition.registry import register

if TYPE_CHECKING:
    from torch.fx import Node

    from fxstack_interchange import Partition, StageGraph
    from fxstack_partition.options import PartitionOptions

SAC_RULES = (
    *NECESSITIES,
    *SELECTIVE_TAGS,
    *(rule for rule in MIN_CUT_RULES if rule not in (*NECESSITIES, *USER_TAGS)),
)
WEIGHT = 16
"""What goes against a preference has to spare this many times the bytes of the value."""


@register("sac")
def sac(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Save and recompute what ``options.policy`` or the graph's tags say; see the module.

    Raises:
        ValueError: a tag is none of the four.
        InfeasibleError: tags leave no way to partition; names the nodes.
    """
    facts = analyze_merged(joint, options)
    tags = {node: wanted_tag(node, options) for node in facts.nodes[:-1]}
    weights = Weights(facts, options)

    def penalty(node: Node) -> int:
        return WEIGHT * weights.of(node) if tags[node] == "prefer_save" else 0

    def dearer(node: Node) -> int:
        return WEIGHT if tags[node] == "prefer_recompute" else 1

    network = build(facts, SAC_RULES, options, penalty, factor=dearer)
    saved = minimum_cut(network, options.solver)
    return extract(facts, saved, network.reasons, options)
