"""Forward and backward together compute what the joint graph computes, whatever the partitioner."""

import pytest
import torch
from joint_programs import PROGRAMS, mlp, norm_dropout, rand, residual_chain
from joints import check, compare, trace_joint

from fxstack_interchange import InputKind, OutputKind
from fxstack_partition import partition

NAMES = ("save_all", "min_cut")
SPECIALIZED = ("embedding_loss", "gather_sort", "split_heads")
"""Programs whose tracing fixes a size."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_static(program, name):
    fn, inputs = PROGRAMS[program]
    check(fn, *inputs(), name=name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in SPECIALIZED])
def test_symbolic(program, name):
    fn, inputs = PROGRAMS[program]
    check(fn, *inputs(), name=name, dynamic=True)


def test_symbolic_graph_serves_other_sizes():
    check(mlp, rand(6, 5), rand(5, 7), rand(7, 3), dynamic=True, at=(rand(9, 4), rand(4, 8), rand(8, 2)))


def test_saved_tensors_come_before_saved_symbols():
    part = check(norm_dropout, rand(6, 8), rand(8), rand(8), dynamic=True)
    values = [n.meta["val"] for n in part.backward.graph_module.graph.find_nodes(op="placeholder")]
    kinds = [isinstance(v, torch.Tensor) for v in values[: len(part.saved)]]
    assert kinds == sorted(kinds, reverse=True)
    assert not all(kinds)


def test_every_symbol_of_the_backward_is_bound():
    part = check(norm_dropout, rand(6, 8), rand(8), rand(8), dynamic=True)
    nodes = part.backward.graph_module.graph.find_nodes(op="placeholder")
    bound = {str(n.meta["val"]) for n in nodes if isinstance(n.meta["val"], torch.SymInt)}
    assert bound == {spec.name for spec in part.backward.signature.symbols}


def test_names_and_signatures_follow_the_joint_graph():
    joint = trace_joint(mlp, rand(6, 5), rand(5, 7), rand(7, 3))
    part = partition(joint)
    primals = [s for s in joint.signature.inputs if s.kind is not InputKind.TANGENT]
    assert list(part.forward.signature.inputs) == primals
    gradients = joint.signature.outputs_of(OutputKind.GRADIENT)
    assert part.backward.signature.outputs == gradients
    tangents = joint.signature.inputs_of(InputKind.TANGENT)
    assert part.backward.signature.inputs_of(InputKind.TANGENT) == tangents


def test_the_joint_graph_is_left_alone():
    joint = trace_joint(mlp, rand(6, 5), rand(5, 7), rand(7, 3))
    before = joint.graph_module.code
    partition(joint)
    assert joint.graph_module.code == before


def test_min_cut_saves_less_than_save_all():
    def chain(x):
        return x.sin().cos().exp().tanh().sum()

    joint = trace_joint(chain, rand(64))
    assert partition(joint, "min_cut").saved == ("arg0_1",)
    assert len(partition(joint, "save_all").saved) == 4


def test_save_all_recomputes_nothing_but_views():
    part = check(residual_chain, rand(4, 6), rand(6, 6), name="save_all")
    assert all(name.startswith(("t", "permute", "view", "expand")) for name in part.recomputed)


def test_nothing_is_saved_twice():
    for fn, inputs in PROGRAMS.values():
        part = partition(trace_joint(fn, *inputs()))
        assert len(set(part.saved)) == len(part.saved)


def test_an_expanded_view_is_saved_as_its_base():
    def expanded(x, y):
        return x.unsqueeze(0).expand(64, 8) * y

    part = check(expanded, rand(8), rand(64, 8))
    assert sorted(part.saved) == ["arg0_1", "arg1_1"]


def test_gradients_that_are_none_stay_none():
    part = check(lambda x, y: x * 2 + y.detach(), rand(3), rand(3))
    assert part.backward.graph_module.graph.output_node().args[0][1] is None


def test_dead_code_is_gone():
    for name in NAMES:
        part = check(norm_dropout, rand(6, 8), rand(8), rand(8), name=name)
        for stage in (part.forward, part.backward):
            for node in stage.graph_module.graph.nodes:
                assert node.users or node.op in ("output", "placeholder")


def test_reasons_name_a_rule_for_every_saved_tensor():
    joint = trace_joint(mlp, rand(6, 5), rand(5, 7), rand(7, 3))
    part = partition(joint)
    reasons = dict(part.reasons)
    assert reasons["mm"] == "heavy: is compute-heavy"
    assert set(part.saved) <= reasons.keys()


def test_partition_is_the_same_every_time():
    joint = trace_joint(residual_chain, rand(4, 6), rand(6, 6))
    first, second = partition(joint), partition(joint)
    assert first.backward.graph_module.code == second.backward.graph_module.code
    assert first.saved == second.saved


def test_a_partition_runs_twice():
    joint = trace_joint(norm_dropout, rand(6, 8), rand(8), rand(8))
    part = partition(joint)
    for _ in range(2):
        compare(joint, part, (rand(6, 8), rand(8), rand(8)))


def residuals(x, *weights):
    """Each sum is read by its norm, and by the next sum behind a product."""
    for w in weights:
        x = x + (x * x.square().mean(-1, keepdim=True).rsqrt()) @ w
    return (x * x.square().mean(-1, keepdim=True).rsqrt()).sum()


def test_sums_of_residuals_are_saved_in_place_of_their_summands():
    part = partition(trace_joint(residuals, rand(64, 8), *(rand(8, 8) for _ in range(3))))
    assert {"add", "add_1"} <= set(part.saved)
    assert not {"mm", "mm_1"} & set(part.saved)
