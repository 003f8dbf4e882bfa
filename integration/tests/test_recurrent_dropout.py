"""Dropout between recurrent layers, in training under symbolic sizes: eager's values, gradients and random numbers."""

import pytest
import torch
from torch import nn

import fxstack

KINDS = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
}
SETTINGS = {
    "plain": {},
    "batch first": {"batch_first": True},
    "both directions": {"bidirectional": True, "batch_first": True},
    "no bias": {"bias": False},
}


def step(layer, run, x, seed):
    """Output, gradients and the state of the generator after a training step."""
    layer.zero_grad()
    torch.manual_seed(seed)
    x = x.clone().requires_grad_()
    out, hidden = run(x)
    values = [out, *(hidden if isinstance(hidden, tuple) else [hidden])]
    sum(value.square().sum() for value in values).backward()
    gradients = [parameter.grad.clone() for parameter in layer.parameters()]
    return [*(value.detach() for value in values), x.grad, *gradients], torch.get_rng_state()


def check(layer, run, sizes, make):
    compiled = fxstack.compile(run)
    for seed, size in enumerate(sizes):
        x = make(size)
        expected, state = step(layer, run, x, seed)
        values, after = step(layer, compiled, x, seed)
        torch.testing.assert_close(values, expected)
        assert torch.equal(after, state), size
    return compiled


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_batch_sizes(kind, setting):
    layer = KINDS[kind](3, 4, num_layers=3, dropout=0.5, **SETTINGS[setting])
    compiled = check(layer, lambda x: layer(x), (2, 3, 5), lambda size: torch.randn(size, size + 1, 3))
    assert fxstack.compile_log(compiled).graph_count


def test_projections():
    layer = nn.LSTM(3, 4, num_layers=2, dropout=0.5, proj_size=2)
    check(layer, lambda x: layer(x), (2, 3), lambda size: torch.randn(4, size, 3))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_packed_sequences(kind):
    layer = KINDS[kind](3, 4, num_layers=2, dropout=0.5)

    def run(x):
        lengths = torch.arange(x.size(1), 0, -1)
        out, hidden = layer(nn.utils.rnn.pack_padded_sequence(x, lengths))
        return out.data, hidden

    check(layer, run, (2, 3), lambda size: torch.randn(6, size, 3))


def test_nothing_is_dropped_in_evaluation():
    layer = nn.LSTM(3, 4, num_layers=2, dropout=0.5).eval()
    check(layer, lambda x: layer(x), (2, 3), lambda size: torch.randn(4, size, 3))
