"""Sizes that are assumed after the graph was captured, by a backward's compiler or a saved-tensor hook, are guarded."""

from contextlib import nullcontext

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

import fxstack
from fxstack_capture import optimize
from fxstack_functionalize import aot
from fxstack_partition import partition


def forward_as_it_is(graph, _inputs):
    return graph.forward


def specialised(graph, inputs):
    """A compiler whose code is right for the sizes that it saw only."""
    sizes = [int(value) for value in inputs if isinstance(value, torch.SymInt)]

    def run(*args):
        found = [value for value in args if isinstance(value, int)]
        assert found == sizes, "compiled for another size"
        return graph.forward(*args)

    return run


def specialising_backend(graph, inputs):
    return aot(graph, inputs, fw_compiler=forward_as_it_is, bw_compiler=specialised, partitioner=partition)


def gradient(fn, length):
    x = torch.linspace(0.1, 0.9, length).requires_grad_()
    fn(x).backward()
    return x.grad


def test_backward_compiler_that_specialises():
    fn = lambda x: (x.sin() / x.shape[0]).sum()
    ours = optimize(specialising_backend)(fn)
    for length in (4, 5, 6, 5, 7):
        assert torch.equal(gradient(ours, length), gradient(fn, length))


def rounded_if_long(t):
    return t.to(torch.bfloat16) if t.shape[0] > 5 else t


def as_float(t):
    return t.to(torch.float32)


@pytest.mark.filterwarnings("ignore:fxstack. the saved-tensor hooks")
@pytest.mark.parametrize("first", [None, (as_float, as_float), (rounded_if_long, as_float)])
def test_hook_that_decides_by_a_symbolic_size(first):
    fn = lambda x: x.sin().exp().sum()
    ours = fxstack.compile(fn, dynamic=True, backend="aot_eager")
    with saved_tensors_hooks(*first) if first else nullcontext():
        gradient(ours, 4)
    for length in (4, 9, 5, 3, 12):
        with saved_tensors_hooks(rounded_if_long, as_float):
            found, expected = gradient(ours, length), gradient(fn, length)
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=0)
        exact = torch.equal(found, gradient(fn, length))
        assert exact == (length <= 5)
