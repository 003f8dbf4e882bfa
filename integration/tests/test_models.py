"""Real architectures, tiny and with random weights: compiled equals eager, in one graph."""

import copy

import pytest
import torch
import zoo
from torch.utils._pytree import tree_leaves

import fxstack


def outputs_of(model, batch, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        return [x for x in tree_leaves(model(**batch)) if isinstance(x, torch.Tensor)]


def train_step(case, model, original, seed=0):
    """Loss, all gradients and buffers after one step."""
    torch.manual_seed(seed)
    original.zero_grad(set_to_none=True)
    loss = case.loss(model, case.batch)
    loss.backward()
    gradients = {name: p.grad for name, p in original.named_parameters()}
    return loss.detach(), gradients, dict(original.named_buffers())


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", zoo.CASES)
def test_inference_equals_eager_in_one_graph(name):
    case = zoo.build(name)
    case.model.eval()
    expected = outputs_of(case.model, case.batch)
    compiled = fxstack.compile(case.model, fullgraph=True)
    assert_same(outputs_of(compiled, case.batch), expected)
    assert_same(outputs_of(compiled, case.batch), expected)
    assert fxstack.compile_log(compiled).graph_count == 1


@pytest.mark.parametrize("name", zoo.CASES)
def test_training_equals_eager_in_one_graph(name):
    case = zoo.build(name)
    case.model.train()
    twin = copy.deepcopy(case.model)
    compiled = fxstack.compile(twin, fullgraph=True)
    for step in range(2):
        expected = train_step(case, case.model, case.model, seed=step)
        actual = train_step(case, compiled, twin, seed=step)
        for got, wanted in zip(actual, expected):
            assert_same(got, wanted)
    assert fxstack.compile_log(compiled).graph_count == 1


@pytest.mark.parametrize("name", zoo.CASES)
def test_output_containers_are_eager_s(name):
    case = zoo.build(name)
    case.model.eval()
    expected = case.forward()
    actual = fxstack.compile(case.model)(**case.batch)
    assert type(actual) is type(expected)
    if not isinstance(expected, torch.Tensor):
        assert list(actual.keys()) == list(expected.keys())
