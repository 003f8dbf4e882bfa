"""A KV cache that the body of a ``while_loop`` writes to, in a small decoder: against the same loop in plain Python."""

import pytest
import torch
from hop_programs import PLAIN, TORCHS
from torch import nn

import fxstack

WIDTH, LENGTH, WORDS = 4, 8, 11


def by_index(cache, position, row):
    cache[position] = row
    return cache, torch.arange(LENGTH) <= position


def by_slice_copy(cache, position, row):
    index = position.item()
    cache.narrow(0, index, 1).copy_(row[None])
    return cache[: index + 1], True


def by_slice_of_tensors(cache, position, row):
    cache[position : position + 1] = row
    return cache[: position + 1], True


def by_scatter(cache, position, row):
    cache.scatter_(0, position.expand(1, WIDTH), row[None])
    return cache, torch.arange(LENGTH) <= position


def by_view(cache, position, row):
    cache[position].copy_(row)
    return cache, torch.arange(LENGTH) <= position


class Decoder(nn.Module):
    """One layer of attention over a cache, and the most likely word per step. ``place``: where the cache is."""

    def __init__(self, write, place):
        super().__init__()
        self.write, self.place = write, place
        self.embedding, self.rows = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.register_buffer("cache", torch.zeros(LENGTH, WIDTH))

    def attend(self, word, position, cache):
        query, row = self.rows(self.embedding(word)).chunk(2)
        seen, mask = self.write(cache, position, row)
        scores = seen.clone() @ query
        weights = scores.where(torch.as_tensor(mask), -torch.inf).softmax(0)
        return self.embedding.weight @ (weights[:, None] * seen.clone()).sum(0)

    def forward(self, ops, word, count, cache):
        cache = self.cache if self.place == "buffer" else cache
        carried = [cache.clone()] if self.place == "carried" else []

        def body(position, word, total, *own):
            own = [each.clone() for each in own]
            scores = self.attend(word, position, *(own or [cache]))
            return position + 1, scores.argmax(), total + scores.logsumexp(0), *own

        start = torch.tensor(0), word, torch.zeros(())
        results = ops.while_loop(lambda position, *_: position < count, body, (*start, *carried))
        return *results, cache * 2


def observed(decoder, module, ops, gradients):
    """The results of two calls, the caches after each, and the gradients of the second call."""
    found = []
    for word, count in ((3, 4), (5, 7)):
        module.zero_grad()
        cache = torch.zeros(LENGTH, WIDTH)
        module.cache = torch.zeros(LENGTH, WIDTH)
        with torch.set_grad_enabled(gradients):
            results = decoder(ops, torch.tensor(word), count, cache)
        found += [*results, cache, module.cache]
    if gradients:
        (results[2] + results[-1].sum()).backward()
    return [*found, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("place", ["buffer", "argument", "carried"])
@pytest.mark.parametrize("write", [by_index, by_slice_copy, by_slice_of_tensors, by_scatter, by_view])
def test_a_cache_written_in_a_loop(write, place, gradients):
    module = Decoder(write, place)
    compiled = fxstack.compile(module, dynamic=True)
    found = observed(compiled, module, TORCHS, gradients)
    torch.testing.assert_close(found, observed(module, module, PLAIN, gradients))
    assert not fxstack.compile_log(compiled).breaks
