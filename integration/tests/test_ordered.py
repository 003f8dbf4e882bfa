"""Scatters, scans and caches through all stages, beside eager: results, gradients, and what is left in the buffers."""

import pytest
import torch
import torch.nn.functional as F

import fxstack


class Decoder(torch.nn.Module):
    """One step of attention over a cache of keys and values."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(20, 16)
        self.register_buffer("keys", torch.zeros(1, 2, 12, 8))
        self.register_buffer("values", torch.zeros(1, 2, 12, 8))

    def forward(self, word, at):
        x = self.table(word).view(1, 1, 2, 8).transpose(1, 2)
        self.keys.index_copy_(2, at, x)
        self.values.index_copy_(2, at, x * 2)
        mask = torch.arange(12)[None] <= at[:, None]
        return F.scaled_dot_product_attention(x, self.keys, self.values, attn_mask=mask)


def test_a_decoder_fills_its_cache():
    torch.manual_seed(0)
    module, eager = Decoder(), Decoder()
    eager.load_state_dict(module.state_dict())
    compiled = fxstack.compile(module)
    with torch.no_grad():
        for step in range(4):
            word, at = torch.randint(0, 20, (1, 1)), torch.tensor([step])
            torch.testing.assert_close(compiled(word, at), eager(word, at))
    assert torch.equal(module.keys, eager.keys)
    assert torch.equal(module.values, eager.values)


def nucleus(x):
    """Of the sorted probabilities, those that come before nine tenths are reached."""
    p, order = x.softmax(-1).sort(-1, descending=True)
    kept = p.cumsum(-1) - p < 0.9
    return torch.zeros_like(x).scatter(-1, order, torch.where(kept, p, 0.0))


def segments(x):
    at = torch.tensor([0, 2, 0, 1, 2])
    total = torch.zeros(3, 7).index_add(0, at, x)
    return total / torch.zeros(3).scatter_add(0, at, torch.ones(5))[:, None]


def rotated(x):
    half = torch.cat([-x[:, 4:], x[:, :4]], -1)
    return (x * half.cos() + half * x.sin()).cumsum(1)


@pytest.mark.parametrize("fn", [nucleus, segments, rotated])
def test_values_and_gradients(fn):
    x = torch.randn(5, 7, requires_grad=True)
    want, got = fn(x), fxstack.compile(fn)(x)
    torch.testing.assert_close(got, want)
    weights = torch.randn_like(want)
    expected = torch.autograd.grad(want, x, weights)
    torch.testing.assert_close(torch.autograd.grad(got, x, weights), expected)
