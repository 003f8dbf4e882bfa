"""Draws as pure functions of the generator's state: eager's numbers, the same for the same state, in a backward too."""

import pytest
import torch
from torch.nn import functional as F

from fxstack_functionalize import trace_inference, with_random_state
from fxstack_functionalize.random.functional_random import functional_form
from fxstack_interchange import verify

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
