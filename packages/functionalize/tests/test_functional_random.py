"""Draws as pure functions of the generator's state: eager's numbers, the same for the same state, in a backward too."""

import pytest
import torch
from helpers import run_graph
from torch.nn import functional as F

from fxstack_functionalize import (
    AotOptions,
    aot,
    trace_inference,
    trace_joint,
    with_random_state,
)
from fxstack_functionalize.functional_random import NAMESPACE, functional_form
from fxstack_interchange import verify
from fxstack_partition import PartitionOptions, partition

aten = torch.ops.aten


def graph_of(fn):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(fn, (x,)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def in_eager(fn, x, state):
    torch.set_rng_state(state)
    return fn(x), torch.get_rng_state()


def several(x):
    return (
        F.dropout(x, 0.5),
        torch.rand(2),
        torch.randn_like(x),
        torch.multinomial(x, 2),
        torch.empty(3, 4).t().bernoulli_(0.5) + 0,
        torch.normal(x, x),
        torch.poisson(x),
        x.clone().uniform_(1, 2),
        F.rrelu(x, training=True),
    )


def nothing(x):
    return (x + 1,)


@pytest.mark.parametrize("fn", [several, nothing])
def test_a_graph_is_a_function_of_its_state(fn):
    x = torch.arange(4.0) + 1
    pure, inputs = with_random_state(graph_of(fn), [x])
    stage = trace_inference(pure, inputs)
    verify(stage)
    state = inputs[-1]
    wanted, after = in_eager(fn, x, state)
    here = torch.get_rng_state()
    for _ in range(2):
        *found, new = stage.graph_module(x, state)
        assert all(map(torch.equal, found, wanted))
        assert torch.equal(new, after)
    assert torch.equal(torch.get_rng_state(), here)


def test_run_in_eager_the_graph_leaves_the_generator_alone():
    x = torch.ones(4)
    pure, (_, state) = with_random_state(graph_of(several), [x])
    wanted, after = in_eager(several, x, state)
    here = torch.get_rng_state()
    found, new = pure(x, state)
    assert all(map(torch.equal, found, wanted))
    assert torch.equal(new, after)
    assert torch.equal(torch.get_rng_state(), here)


def region(x):
    return F.dropout(x.sin(), 0.5).exp()


def checkpointed(x):
    return torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False).sum()


def checkpointed_graph():
    root, graph = torch.nn.Module(), torch.fx.Graph()
    root.region = torch.fx.symbolic_trace(region)
    x = graph.placeholder("x")
    tagged = torch.ops.higher_order.tag_activation_checkpoint
    y = graph.call_function(tagged, (graph.get_attr("region"), x), {"use_reentrant": False})
    graph.output((graph.call_method("sum", (y,)),))
    return torch.fx.GraphModule(root, graph)


def names_of(stage):
    return [str(node.target) for node in stage.graph_module.graph.nodes]


def test_a_backward_draws_the_same_again():
    x = (torch.arange(8.0) + 1).requires_grad_()
    joint = trace_joint(*with_random_state(checkpointed_graph(), [x]))
    cut = partition(joint, "min_cut", PartitionOptions())
    assert any(name.startswith(NAMESPACE) for name in names_of(cut.backward))
    torch.manual_seed(3)
    checkpointed(x).backward()
    wanted, after, x.grad = x.grad, torch.get_rng_state(), None
    compiled = aot(
        checkpointed_graph(),
        [x],
        fw_compiler=run_graph,
        partitioner=lambda stage: partition(stage, "min_cut"),
        options=AotOptions(functional_random=True, verify=True),
    )
    torch.manual_seed(3)
    compiled(x)[0].backward()
    assert torch.equal(x.grad, wanted)
    assert torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize(
    ("operator", "schema"),
    [
        (aten.poisson.default, "(Tensor state, Tensor self) -> (Tensor, Tensor)"),
        (
            aten.native_dropout.default,
            "(Tensor state, Tensor input, float p, bool? train) -> (Tensor, Tensor, Tensor)",
        ),
    ],
)
def test_functional_form(operator, schema):
    assert str(functional_form(operator)._schema).partition("(")[2] == schema[1:]
