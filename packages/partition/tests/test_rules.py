"""What is never recomputed, what is never saved, and why."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from joint_programs import norm_dropout, rand
from joints import check, compare, demand_values_before_the_update, mutating_joint, trace_joint
from torch._subclasses.fake_tensor import FakeTensorMode

from fxstack_partition import PartitionError, PartitionOptions, analyze, extract, partition
from fxstack_partition.joint.joint import JointGraphError
from fxstack_partition.joint.ops import OpKind, kind_of, written_arguments
from fxstack_partition.mincut.network import BYTE, SOURCE, Edge, Weights, build_flow_network
from fxstack_partition.mincut.solve import InfeasibleError, minimum_cut
from fxstack_partition.policy.policy import Rule, Verdict

OPTIONS = PartitionOptions()


def tag(joint, recompute, *names):
    for node in joint.graph_module.graph.nodes:
        if any(node.name.startswith(name) for name in names):
            node.meta["recompute"] = recompute
    return joint


def kinds(fn, *inputs):
    joint = trace_joint(fn, *inputs)
    return {n.name: kind_of(n) for n in joint.graph_module.graph.nodes if n.op != "output"}


def test_a_printed_text_is_an_effect():
    def fn(x):
        torch._higher_order_ops.print("sum {}", x.sum())
        return x.sin()

    graph = trace_joint(fn, rand(3)).graph_module.graph
    (node,) = (n for n in graph.nodes if n.target is torch.ops.higher_order.print)
    assert kind_of(node) is OpKind.EFFECT


def test_kinds():
    def fn(x, w):
        h = (x @ w).t().exp()
        h = torch.native_dropout(h, 0.5, True)[0]
        return h.sum(0) + h.sort(0)[0].sum(0) + torch.full((3,), 2.0)

    found = kinds(fn, rand(3, 4), rand(4, 3))
    assert found["mm"] is OpKind.HEAVY
    assert found["t"] is OpKind.VIEW
    assert found["exp"] is OpKind.POINTWISE
    assert found["native_dropout"] is OpKind.RANDOM
    assert found["getitem"] is OpKind.GETITEM
    assert found["sum_1"] is OpKind.REDUCTION
    assert found["sort"] is OpKind.HEAVY
    assert found["full"] is OpKind.CREATION


def test_batch_norm_writes_although_its_schema_denies_it():
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(c) for c in "xwbmv"]
    node = graph.call_function(torch.ops.aten.native_batch_norm.default, (*nodes, True, 0.1, 1e-5))
    assert [n.name for n in written_arguments(node)] == ["m", "v"]
    assert kind_of(node) is OpKind.EFFECT


def test_random_numbers_are_never_drawn_again():
    for name in ("save_all", "min_cut"):
        part = check(norm_dropout, rand(6, 8), rand(8), rand(8), name=name)
        assert "native_dropout" not in part.recomputed
        assert "native_dropout" not in part.backward.graph_module.code.replace("dropout_backward", "")


def test_random_numbers_without_a_state_to_keep_beat_a_tag():
    joint = trace_joint(lambda x: (x * torch.rand(64)).sin(), rand(64))
    part = partition(tag(joint, "must_recompute", "rand"))
    assert "rand" not in part.recomputed
    compare(joint, part, (rand(64),))


def test_must_recompute_is_obeyed_through_elements_and_views():
    def fn(x, w):
        return F.layer_norm((x @ w).t(), (4,)).exp()

    joint = trace_joint(fn, rand(4, 3), rand(3, 5))
    tag(joint, "must_recompute", "mm", "t", "native_layer_norm", "exp")
    part = partition(joint)
    assert set(part.saved) == {"arg0_1", "arg1_1"}
    assert {"mm", "native_layer_norm", "exp"} <= set(part.recomputed)
    compare(joint, part, (rand(4, 3), rand(3, 5)))


def test_must_save_is_obeyed():
    def chain(x):
        return x.sin().cos().exp()

    joint = tag(trace_joint(chain, rand(64)), "must_save", "sin")
    part = partition(joint)
    assert "sin" not in part.recomputed


def test_contradicting_rules_are_an_error_that_names_the_nodes():
    def recompute_inputs_too(node, facts, options):
        return Verdict.RECOMPUTE

    joint = trace_joint(lambda x: x.sin().exp(), rand(3))
    rules = (Rule("odd", "for the test", recompute_inputs_too),)
    network = build_flow_network(analyze(joint), rules, OPTIONS)
    source = Edge(SOURCE, network.names.index("arg0_1"), None)
    network = replace(network, edges=(source, *network.edges))
    with pytest.raises(InfeasibleError, match="impossible to save and impossible to recompute"):
        minimum_cut(network, "networkx")


def test_an_input_that_is_not_saved_is_an_error():
    joint = trace_joint(lambda x: x.sin(), rand(3))
    with pytest.raises(PartitionError, match="'arg0_1', an input of the forward, is read by 'cos'"):
        extract(analyze(joint), ())


def test_saving_what_the_forward_lacks_is_an_error():
    facts = analyze(trace_joint(lambda x: x.exp(), rand(3)))
    tangent = facts.tangents[0]
    with pytest.raises(PartitionError, match="depends on a tangent"):
        extract(facts, (tangent,))


def test_recomputing_random_numbers_is_an_error():
    joint = trace_joint(lambda x: x * torch.rand(3), rand(3))
    facts = analyze(joint)
    with pytest.raises(PartitionError, match=r"'rand' \(random numbers\) would run a second time"):
        extract(facts, facts.primals)


def test_an_extra_saved_value_that_nothing_reads_is_dropped():
    joint = trace_joint(lambda x: x.sin(), rand(3))
    facts = analyze(joint)
    part = extract(facts, [*facts.primals, *(n for n in facts.nodes if n.name == "sin")])
    assert part.saved == ("arg0_1",)


@pytest.mark.parametrize("name", ["save_all", "min_cut"])
def test_saved_inputs_that_are_updated_are_copied(name):
    demand_values_before_the_update(partition(mutating_joint(), name))


def test_trailing_copies_stay_in_the_forward():
    joint = trace_joint(lambda x, w: x.detach() * w, rand(4), rand(4))
    graph = joint.graph_module.graph
    x, w = (n for n in list(graph.nodes)[:2])
    with graph.inserting_before(graph.output_node()):
        value = graph.call_function(torch.ops.aten.add.Tensor, (x, 1))
        graph.call_function(torch.ops.aten.copy_.default, (x, value))
    joint.graph_module.recompile()
    part = partition(joint)
    a, b = torch.randn(4), torch.randn(4)
    before = a.clone()
    out, *saved = part.forward.graph_module(a, b)
    torch.testing.assert_close(a, before + 1)
    assert "copy_" not in part.backward.graph_module.code
    torch.testing.assert_close(part.backward.graph_module(*saved, torch.ones(4))[1], before)


def test_random_numbers_of_the_backward_stay_there():
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 1.0 + torch.rand(3)

    part = check(lambda x: Noisy.apply(x), rand(3))
    assert "rand" in part.backward.graph_module.code
    assert "rand" not in part.forward.graph_module.code


def test_static_parameters_cost_nothing():
    def fn(x, w):
        return x @ w.exp()

    free = partition(trace_joint(fn, rand(64, 8), rand(8, 8), parameters=(1,)))
    assert "arg1_1" in free.saved
    assert "exp" not in free.saved


def test_a_wrong_stage_is_an_error():
    part = partition(trace_joint(lambda x: x.exp(), rand(3)))
    with pytest.raises(JointGraphError, match="expected a joint graph, got a forward graph"):
        partition(part.forward)


def test_an_unknown_solver_is_an_error():
    joint = trace_joint(lambda x: x.exp(), rand(3))
    with pytest.raises(LookupError, match="no minimum-cut solver is called 'magic'; known are"):
        partition(joint, options=PartitionOptions(solver="magic"))


def test_a_narrow_value_is_saved_in_place_of_its_conversion():
    def fn(x, w):
        product = x.bfloat16() @ w.bfloat16()
        wide = product.view(-1, 8).float()
        return product, (wide.cos() - wide.amax(1, keepdim=True)).sum()

    joint = trace_joint(fn, rand(8, 4), rand(4, 8))
    unsaved = (joint.signature.outputs[0].name,)
    joint = replace(joint, signature=replace(joint.signature, unsaved=unsaved))
    saved = partition(joint).forward.graph_module(rand(8, 4), rand(4, 8))[2:]
    assert not any(value.dtype is torch.float32 and value.shape == (8, 8) for value in saved)


def saved_names(fn, *inputs, rewriting):
    joint = trace_joint(fn, *inputs)
    part = partition(joint, options=PartitionOptions(rewriting=rewriting))
    compare(joint, part, inputs)
    return {name.rstrip("_0123456789") for name in part.saved}


def gated(gate, up, w):
    return (F.silu(gate.exp()) * up.exp()) @ w


def repeated(x, w, v):
    return (x @ w)[:, None].expand(8, 4, 8).reshape(32, 8) @ v


@pytest.mark.parametrize(("rewriting", "saved"), [(None, False), (0.9, False), (1.5, True)])
def test_an_activation_is_saved_where_a_second_write_of_it_costs_more_than_its_memory(rewriting, saved):
    names = saved_names(gated, rand(16, 8), rand(16, 8), rand(8, 8), rewriting=rewriting)
    assert ("mul" in names) == saved


@pytest.mark.parametrize(("rewriting", "saved"), [(0.0, False), (0.9, True)])
def test_repeated_rows_are_saved_where_they_are_no_larger_than_their_source_and_a_second_write(
    rewriting, saved
):
    names = saved_names(repeated, rand(8, 8), rand(8, 8), rand(8, 8), rewriting=rewriting)
    assert (names & {"clone", "view", "_unsafe_view"} != set()) == saved


def test_values_that_are_not_on_a_cpu_have_a_price_of_a_second_write():
    def price(device):
        with FakeTensorMode():
            inputs = [torch.empty(8, 8, device=device, requires_grad=True) for _ in range(3)]
            joint = trace_joint(repeated, *inputs)
        facts = analyze(joint)
        weights = Weights(facts, OPTIONS)
        return max(map(weights.rewrite_cost, facts.nodes[:-1]))

    assert (price("cpu"), price("meta")) == (0, int(32 * 8 * 4 * BYTE * 0.9))
