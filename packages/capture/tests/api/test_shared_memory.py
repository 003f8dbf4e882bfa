"""Writes to inputs that share memory: eager's values whatever starts or stops sharing between calls."""

import itertools

import numpy as np
import pytest
import torch

import fxstack_capture


def write_one(x, y):
    x.add_(1)
    return y * 2 + x.sum()


def write_both(x, y):
    x.add_(1)
    z = y * 2
    y.mul_(3)
    return z + x.sum()


def write_through_a_view(x, y):
    x[1:].mul_(2)
    return x + y


LAYOUTS = {
    "halves": lambda b: (b[:4], b[4:]),
    "overlapping": lambda b: (b[:4], b[3:7]),
    "the same place": lambda b: (b[:4], b[:4]),
    "every second": lambda b: (b[::2], b[1::2]),
    "apart": lambda b: (b[:4].clone(), b[4:]),
    "one object": lambda b: (x := b[:4], x),
}


def call(fn, layout):
    base = torch.arange(8.0)
    return fn(*LAYOUTS[layout](base)), base


@pytest.mark.parametrize("fn", [write_one, write_both, write_through_a_view])
def test_sharing_may_change_between_calls(fn):
    graphs = []

    def backend(graph_module, _inputs):
        graphs.append(graph_module)
        return graph_module.forward

    options = fxstack_capture.CaptureOptions(fullgraph=True, recompile_limit=99)
    compiled = fxstack_capture.optimize(backend, options=options)(fn)
    for layout in itertools.chain.from_iterable(itertools.permutations(LAYOUTS, 2)):
        torch.testing.assert_close(call(compiled, layout), call(fn, layout), rtol=0, atol=0)
    assert len(graphs) <= 2 * len(LAYOUTS)


def test_reading_inputs_that_share_memory_needs_no_guard():
    compiled = fxstack_capture.explain(lambda x, y: x + y)
    base = torch.arange(8.0)
    kinds = {type(guard.check).__name__ for guard in compiled(base[:4], base[4:]).guards}
    assert not kinds & {"SharesStorage", "NoOverlap"}


@pytest.mark.parametrize("fn", [write_one, write_both, write_through_a_view])
def test_storages_may_be_made_over_the_same_memory(fn):
    compiled = fxstack_capture.optimize(lambda graph_module, _inputs: graph_module.forward)(fn)

    def called(fn, first, second):
        array = np.arange(8.0)
        tensors = torch.from_numpy(array[:4]), torch.from_numpy(array[first:second])
        return fn(*tensors), torch.from_numpy(array)

    for places in ((4, 8), (0, 4), (4, 8), (2, 6), (4, 8)):
        torch.testing.assert_close(called(compiled, *places), called(fn, *places), rtol=0, atol=0)


def set_to_each_other(a, b):
    made = a * 1
    flat = made.view(-1)
    both = made, flat, flat[1:], made.view(-1)[1:]
    own = [x.is_set_to(y) for x in both for y in both]
    return own, a.is_set_to(made), a.view(a.shape).is_set_to(a), a.is_set_to(b)


@pytest.mark.parametrize("dynamic", [None, True])
def test_is_set_to(dynamic):
    base = torch.arange(6.0)
    compiled = fxstack_capture.optimize(dynamic=dynamic)(set_to_each_other)
    for a, b in ((base, base), (base, base[:]), (base, base.clone()), (base[1:], base[:-1])):
        assert compiled(a, b) == set_to_each_other(a, b)
