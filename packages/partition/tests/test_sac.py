"""Selective checkpointing: must is obeyed, preferences weigh, random numbers are kept right."""

import pytest
import torch
from joint_programs import norm_dropout, rand
from joints import compare, trace_joint
from test_rules import tag
from torch.utils.checkpoint import CheckpointPolicy

from fxstack_partition import PartitionOptions, check_partition, partition


def chain(x, w):
    return (x @ w).sin().exp().cos().tanh()


def cut(policy, fn=chain, inputs=None):
    """Partition by ``policy`` (name -> tag) and compare with the joint graph."""
    inputs = inputs or (rand(8, 8), rand(8, 8))
    joint = trace_joint(fn, *inputs)
    options = PartitionOptions(policy=lambda node: policy.get(node.name))
    part = partition(joint, "sac", options)
    check_partition(joint, part)
    compare(joint, part, inputs)
    return part


def test_without_tags_it_is_min_cut():
    joint = trace_joint(chain, rand(8, 8), rand(8, 8))
    assert partition(joint, "sac").saved == partition(joint, "min_cut").saved


def test_must_recompute_reaches_heavy_operators():
    part = cut({"mm": "must_recompute"})
    assert "mm" in part.recomputed
    assert "mm" not in part.saved


def test_must_save_is_not_recomputed():
    part = cut({name: "must_save" for name in ("mm", "sin", "exp", "cos")})
    assert not {"mm", "sin", "exp", "cos"} & set(part.recomputed)


def test_preferences_decide_between_equals():
    assert "sin" in cut({}).recomputed
    assert "sin" not in cut({"sin": "prefer_save"}).recomputed
    assert "mm" in cut({"sin": "prefer_recompute"}).saved


def test_a_preference_to_recompute_is_overruled_by_a_clear_gain():
    def summed(x):
        return x.sum(1, keepdim=True).sin().exp()

    part = cut({"sum_1": "prefer_recompute"}, summed, (torch.randn(4, 999, requires_grad=True) * 1,))
    assert "sum_1" not in part.recomputed
    assert "arg0_1" not in part.saved


def test_random_numbers_are_drawn_again_from_the_kept_state():
    inputs = rand(6, 8), rand(8), rand(8)
    joint = trace_joint(norm_dropout, *inputs)
    names = [n.name for n in joint.graph_module.graph.nodes if n.op == "call_function"]
    part = cut(dict.fromkeys(names, "must_recompute"), norm_dropout, inputs)
    assert "native_dropout" in part.recomputed
    compare(joint, part, inputs)


def test_torch_policies_are_tags():
    part = cut({"mm": CheckpointPolicy.MUST_RECOMPUTE})
    assert "mm" in part.recomputed


def test_tags_in_the_graph_count_where_the_policy_is_silent():
    joint = tag(trace_joint(chain, rand(8, 8), rand(8, 8)), "must_recompute", "mm")
    assert "mm" in partition(joint, "sac").recomputed
    keep = PartitionOptions(policy=lambda node: "must_save" if node.name == "mm" else None)
    assert "mm" in partition(joint, "sac", keep).saved


def test_an_unknown_tag_is_an_error():
    options = PartitionOptions(policy=lambda node: "sometimes" if node.name == "mm" else None)
    with pytest.raises(ValueError, match="'mm' has the recompute tag 'sometimes'; known are must_s"):
        partition(trace_joint(chain, rand(8, 8), rand(8, 8)), "sac", options)
