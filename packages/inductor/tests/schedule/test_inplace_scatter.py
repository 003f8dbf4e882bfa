"""Scatters into mutated inputs: in the input itself, checked first, as eager leaves everything."""

import pytest
import torch
from inductor_checks import FAST, assert_equal, copies, trace
from torch.utils import _pytree as pytree

import fxstack_inductor as fi
from fxstack_inductor.ir.ordered import Scatter

CACHE = torch.randn(2, 3, 16, 8)
KEYS = torch.randn(2, 3, 2, 8)
AT = torch.tensor([4, 5])


def attend(cache, at, keys):
    cache.index_copy_(2, at, keys * 2)
    return ((cache @ keys.transpose(-1, -2)).softmax(-2),)


def put(cache, at, keys):
    cache[:, :, at] = keys
    return (cache.sum(-1),)


def add(cache, at, keys):
    cache.index_add_(2, at, keys)
    return (cache @ keys.transpose(-1, -2),)


def two(cache, at, keys, other):
    cache.index_copy_(2, at, keys)
    other.index_copy_(2, at, keys + 1)
    return (cache @ other.transpose(-1, -2),)


def embedded(cache, at, table, words):
    keys = table[words]
    cache.index_copy_(2, at, keys)
    return (cache @ keys.transpose(-1, -2),)


def again(cache, at, keys):
    cache.index_copy_(2, at, keys)
    cache.index_copy_(2, at + 1, keys * 2)
    return (cache @ keys.transpose(-1, -2),)


def read_between(cache, at, keys):
    cache.index_copy_(2, at, keys)
    old = cache @ keys.transpose(-1, -2)
    cache.index_add_(2, at, keys * 2)
    return (old, cache @ keys.transpose(-1, -2))


def summed_between(cache, at, keys):
    cache.index_add_(2, at, keys)
    old = cache.sum(-1)
    cache.index_add_(2, at, cache[:, :, :2])
    return (old,)


def old_too(cache, at, keys):
    old = cache @ keys.transpose(-1, -2)
    cache.index_copy_(2, at, keys)
    return old, cache @ keys.transpose(-1, -2)


def old_later(cache, at, keys):
    old = cache.clone()
    cache.index_copy_(2, at, keys)
    return ((old * 2) @ cache.transpose(-1, -2),)


def returned(cache, at, keys):
    cache.index_copy_(2, at, keys)
    return (cache.clone(),)


def from_itself(cache, at, keys):
    cache.index_copy_(2, at, cache[:, :, :2] + keys)
    return ()


WORDS = torch.tensor([[[1, 0], [2, 2], [3, 1]]] * 2)
IN_PLACE = [
    (attend, (CACHE, AT, KEYS)),
    (put, (CACHE, AT, KEYS)),
    (add, (CACHE, torch.tensor([3, 3]), KEYS)),
    (two, (CACHE, AT, KEYS, CACHE * 2)),
    (embedded, (CACHE, AT, torch.randn(4, 8), WORDS)),
    (old_too, (CACHE, AT, KEYS)),
    (again, (CACHE, AT, KEYS)),
]
COPIED = [
    (read_between, (CACHE, AT, KEYS)),
    (summed_between, (CACHE, AT, KEYS)),
    (attend, (CACHE.transpose(0, 1).contiguous().transpose(0, 1), AT, KEYS)),
    (old_later, (CACHE, AT, KEYS)),
    (from_itself, (CACHE, AT, KEYS)),
    (returned, (CACHE, AT, KEYS)),
]


def compiled(fn, inputs):
    """Compile, compare results and all inputs afterwards with eager, twice; the host program."""
    graph = trace(fn, *inputs)
    made = fi.compile_graph(graph, inputs, FAST)
    want_inputs, got_inputs = copies(inputs), copies(inputs)
    for _ in range(2):
        want = pytree.tree_leaves(fn(*want_inputs))
        assert_equal(made(*got_inputs), want)
        assert_equal(got_inputs, want_inputs)
    return made


@pytest.mark.parametrize(("fn", "inputs"), IN_PLACE)
def test_no_copy_is_left(fn, inputs):
    made = compiled(fn, inputs)
    assert not made.lowered.plan.copies
    stored = [node for step in made.lowered.plan.steps for node in getattr(step, "stored", ())]
    assert not any(isinstance(node, Scatter) for node in stored)


@pytest.mark.parametrize(("fn", "inputs"), COPIED)
def test_what_reads_the_old_contents_keeps_them(fn, inputs):
    compiled(fn, inputs)


@pytest.mark.parametrize("bad", [99, -1])
@pytest.mark.parametrize("fn", [attend, add])
def test_nothing_is_written_when_an_index_is_out_of_range(fn, bad):
    made = compiled(fn, (CACHE, AT, KEYS))
    inputs = copies((CACHE, torch.tensor([1, bad]), KEYS))
    with pytest.raises(IndexError, match="out of (range|bounds)"):
        made(*inputs)
    assert torch.equal(inputs[0], CACHE)


def test_nor_when_one_of_an_earlier_kernel_is():
    inputs = (CACHE, AT, torch.randn(4, 8), WORDS)
    made = compiled(embedded, inputs)
    inputs = copies((*inputs[:3], WORDS + 9))
    with pytest.raises(IndexError):
        made(*inputs)
    assert torch.equal(inputs[0], CACHE)
