"""A partition from elsewhere: right ones pass, each kind of wrong one gets an error that names node and rule."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from joint_programs import PROGRAMS, mlp, norm_dropout, rand
from joints import mutating_joint, trace_joint
from test_rules import tag

from fxstack_interchange import OutputKind, StageGraph
from fxstack_partition import PartitionError, check_partition, partition


@pytest.mark.parametrize("name", ["save_all", "min_cut", "budget"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_our_own_pass(program, name):
    fn, inputs = PROGRAMS[program]
    joint = trace_joint(fn, *inputs())
    check_partition(joint, partition(joint, name))


def test_symbolic_and_copied_ones_pass():
    joint = trace_joint(norm_dropout, rand(6, 8), rand(8), rand(8), dynamic=True)
    check_partition(joint, partition(joint))
    check_partition(mutating_joint(), partition(mutating_joint()))


def case():
    joint = trace_joint(mlp, rand(6, 5), rand(5, 7), rand(7, 3))
    return joint, partition(joint)


def wrong(joint, part, text):
    with pytest.raises(PartitionError, match=text):
        check_partition(joint, part)


def node_of(stage, name):
    return next(n for n in stage.graph_module.graph.nodes if n.name == name)


def test_a_changed_operator():
    joint, part = case()
    node_of(part.forward, "gelu").target = torch.ops.aten.silu.default
    wrong(joint, part, "'gelu' breaks rule 'topology': is not a computation of the joint graph")


def test_a_changed_argument():
    joint, part = case()
    node = node_of(part.forward, "gelu")
    node.args = (node.all_input_nodes[0].all_input_nodes[0],)
    wrong(joint, part, "'gelu' breaks rule 'topology': reads arg0_1 instead of mm")


@pytest.mark.parametrize("other", [1, 1.5, True, "tanh"])
def test_a_changed_number_or_text(other):
    joint = trace_joint(lambda x: F.gelu(x).sum(0) * 2.0, rand(4, 4))
    part = partition(joint)
    node = node_of(part.forward, "mul")
    node.args = (node.args[0], other)
    wrong(joint, part, f"'mul' breaks rule 'topology': is called with .sum_1, {other}. instead of")


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("first", "second"), [(1, 1.0), (1, True), (0.0, -0.0)])
def test_arguments_that_only_look_alike_are_different(first, second, dynamic):
    def fn(x):
        return (x + first).sin(), (x + second).cos()

    joint = trace_joint(fn, rand(4, 4), dynamic=dynamic)
    part = partition(joint)
    node_of(part.forward, "cos").args = (node_of(part.forward, "add"),)
    wrong(joint, part, "'cos' breaks rule 'topology': reads add instead of add_1")


def test_an_exchanged_result():
    joint, part = case()
    output = part.backward.graph_module.graph.output_node()
    first, second, third = output.args[0]
    output.args = ((second, first, third),)
    wrong(joint, part, "breaks rule 'results': is returned in the place of")


def test_an_input_that_the_forward_does_not_save():
    joint, part = case()
    signature = part.backward.signature
    inputs = (replace(signature.inputs[0], target="nowhere"), *signature.inputs[1:])
    backward = StageGraph(part.backward.graph_module, replace(signature, inputs=inputs))
    wrong(joint, replace(part, backward=backward), "'nowhere' breaks rule 'saved': is an input")


def test_a_missing_output():
    joint, part = case()
    output = part.forward.graph_module.graph.output_node()
    output.args = (output.args[0][:-1],)
    wrong(joint, part, "'forward' breaks rule 'stages': has 4 outputs, its signature describes 5")


def test_random_numbers_drawn_twice():
    joint = trace_joint(lambda x: x * torch.rand(3), rand(3))
    part = partition(joint)
    graph = part.backward.graph_module.graph
    held = node_of(part.backward, "rand")
    held.name = "held"
    drawn = node_of(joint, "rand")
    with graph.inserting_after(node_of(part.backward, "tangent_0")):
        again = graph.call_function(drawn.target, drawn.args, drawn.kwargs)
    again.name = "rand"
    held.replace_all_uses_with(again)
    wrong(joint, part, r"'rand' breaks rule 'never-twice': \(random numbers\) runs in the forward")


def test_tags_that_are_not_respected():
    joint = trace_joint(lambda x: x.sin().exp().cos(), rand(64))
    part = partition(joint, "save_all")
    kept = part.forward.signature.outputs_of(OutputKind.SAVED)[-1].name
    wrong(tag(joint, "must_recompute", kept), part, f"'{kept}' breaks rule 'tags': is tagged must_")
    joint = trace_joint(lambda x: x.sin().exp().cos(), rand(64))
    part = partition(joint, "min_cut")
    wrong(tag(joint, "must_save", "sin"), part, "'sin' breaks rule 'tags': is tagged must_save")


def test_what_a_function_returns_is_checked():
    def careless(joint, options):
        part = partition(joint, "min_cut", options)
        node_of(part.forward, "gelu").target = torch.ops.aten.silu.default
        return part

    with pytest.raises(PartitionError, match="'gelu' breaks rule 'topology'"):
        partition(case()[0], careless)


@pytest.mark.parametrize("name", ["save_all", "min_cut", "budget"])
def test_memory_that_eager_does_not_save_is_saved_as_a_copy(name):
    joint = trace_joint(lambda x: (x + 1, (x + 1).double().cos()), rand(4, 4))
    unsaved = ("arg0_1", joint.signature.outputs[0].name)
    joint = replace(joint, signature=replace(joint.signature, unsaved=unsaved))
    part = partition(joint, name)
    check_partition(joint, part)
    inputs = [rand(4, 4)]
    first, second, *saved = part.forward.graph_module(*inputs)
    known = {tensor.untyped_storage()._cdata for tensor in (*inputs, first, second)}
    assert known.isdisjoint(value.untyped_storage()._cdata for value in saved)


def test_an_updated_input_that_is_saved_without_a_copy():
    joint = mutating_joint()
    part = partition(joint)
    graph = part.forward.graph_module.graph
    copy = next(n for n in graph.nodes if n.target is torch.ops.aten.clone.default)
    copy.replace_all_uses_with(copy.all_input_nodes[0])
    wrong(joint, part, "'arg0_1' breaks rule 'updated': is saved without a copy, but its memory changes")
