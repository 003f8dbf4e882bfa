"""Addresses that run along several loops as along one: the text, and the values through the interpreter."""

import pytest
import torch
from inductor_checks import trace

from fxstack_inductor import InductorOptions, compile_graph
from fxstack_inductor.targets.triton.lower import lower_triton

pytest.importorskip("triton")
TRITON = InductorOptions(target="cuda")


def text(fn, *inputs):
    """The kernels of a function of float32 tensors, after the values are compared with eager."""
    graph = trace(fn, *inputs)
    torch.testing.assert_close(compile_graph(graph, inputs, TRITON)(*inputs)[0], fn(*inputs))
    source = lower_triton(graph, TRITON).source
    return "\n".join(function.text for function in source.functions.values())


def test_an_address_along_all_points_is_the_point():
    made = text(lambda x, w: x * w[:, None], torch.randn(3, 20, 7), torch.randn(20))
    assert "tl.load(a0 + (x), mask=xmask" in made
    assert "tl.store(a2 + (x + xzero)" in made


def test_an_address_along_the_last_loops_is_a_remainder():
    made = text(
        lambda x, y, w: x * y + w[:, None], torch.randn(3, 20, 7), torch.randn(20, 7), torch.randn(20)
    )
    assert "xfrom1 = x % (140)" in made
    assert "tl.load(a1 + (xfrom1)" in made


def test_a_broadcast_between_the_loops_keeps_its_digits():
    made = text(lambda x, w: x + w, torch.randn(3, 5, 7), torch.randn(3, 1, 7))
    assert "tl.load(a1 + (p0*7 + p2)" in made or "tl.load(a1 + (p2 + p0*7)" in made
