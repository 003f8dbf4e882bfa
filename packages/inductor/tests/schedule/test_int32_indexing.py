"""Symbolic sizes whose kernels index with 32 bits, and with 64 where a call's sizes need them."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, compile_graph, decompositions
from fxstack_inductor.targets.triton.lower import lower_triton

pytest.importorskip("triton")
TRITON = InductorOptions(target="cuda")


def traced(fn, *inputs, mode="symbolic"):
    return make_fx(fn, decomposition_table=decompositions(), tracing_mode=mode)(*inputs)


def turned(x, y):
    return (x.relu() + y).permute(2, 0, 1).reshape(x.shape[2], -1)


@pytest.mark.parametrize("shape", [(5, 7, 33), (3, 1, 100)])
def test_values_are_eagers(shape):
    example = torch.randn(4, 6, 10), torch.randn(4, 6, 10)
    call = compile_graph(traced(turned, *example), example, TRITON)
    inputs = torch.randn(shape), torch.randn(shape)
    assert torch.equal(call(*inputs)[0], turned(*inputs))
    assert "tl.int64) * XBLOCK" not in call.lowered.triton


def test_sizes_that_do_not_fit_get_kernels_of_64_bits(monkeypatch):
    """What fits is made small."""
    monkeypatch.setattr("fxstack_inductor.schedule.int32_indexing.INT32", 300)
    example = torch.randn(4, 6, 10), torch.randn(4, 6, 10)
    call = compile_graph(traced(turned, *example), example, TRITON)
    made = []
    original = lower_triton

    def noted(*args, **kwargs):
        made.append(original(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr("fxstack_inductor.targets.triton.load.lower_triton", noted)
    for shape in ((5, 6, 10), (5, 6, 11)):
        inputs = torch.randn(shape), torch.randn(shape)
        assert torch.equal(call(*inputs)[0], turned(*inputs))
    (wide,) = made
    assert "tl.int64) * XBLOCK" in wide.triton
    assert not wide.limits


def test_sizes_that_did_not_fit_when_traced_are_indexed_with_64_bits(monkeypatch):
    monkeypatch.setattr("fxstack_inductor.schedule.int32_indexing.INT32", 100)
    lowered = lower_triton(traced(lambda x: x.t() * 2, torch.randn(10, 11)), TRITON)
    assert not lowered.limits
    assert "tl.int64) * XBLOCK" in lowered.triton


def test_numbers_of_64_bits_are_computed_with_64_bits():
    """The points fit into 32 bits, what is made of them does not."""

    def fn(x):
        return torch.arange(0, 10**10, 10**6) + x

    x = torch.zeros(10_000, dtype=torch.int64)
    call = compile_graph(traced(fn, x, mode="fake"), (x,), TRITON)
    assert torch.equal(call(x)[0], fn(x))


def test_what_is_divided_must_fit_too():
    """Neighbours that are 2**20 apart, of which a quotient is read."""

    def fn(x, y):
        at = torch.arange(4096, device=x.device) * 2**20 // 2**21
        return x[at] + y

    x, y = torch.randn(2048), torch.randn(4096)
    call = compile_graph(traced(fn, x, y, mode="fake"), (x, y), TRITON)
    assert torch.equal(call(x, y)[0], fn(x, y))
