"""Convolutions with biases taken apart, on tensors of a GPU that is not there; values on CPU, where torch adds them."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import decompositions
from fxstack_inductor.lower.decompositions import convolution_bias

aten = torch.ops.aten
CASES = {
    "plain": ((2, 3, 8, 8), (4, 3, 3, 3), 4, {}),
    "channels last": ((2, 3, 8, 8), (4, 3, 3, 3), 4, {"memory_format": torch.channels_last}),
    "one dimension": ((2, 3, 8), (4, 3, 3), 4, {}),
    "three": ((2, 3, 5, 5, 5), (4, 3, 3, 3, 3), 4, {}),
    "groups": ((2, 4, 8, 8), (6, 2, 3, 3), 6, {"groups": 2}),
    "transposed": ((2, 3, 8, 8), (3, 4, 3, 3), 4, {"transposed": True}),
}


def arguments(name, device="cpu"):
    shape, weight, channels, more = CASES[name]
    x, w = torch.randn(shape, device=device), torch.randn(weight, device=device)
    x = x.contiguous(memory_format=more.get("memory_format", torch.contiguous_format))
    n = len(weight) - 2
    rest = ([1] * n, [1] * n, [1] * n, more.get("transposed", False), [0] * n, more.get("groups", 1))
    return x, w, torch.randn(channels, device=device), rest


def graph_of(fn):
    with FakeTensorMode():
        return make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")()


def targets(graph):
    return {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)


@pytest.mark.parametrize("name", CASES)
def test_the_sum_is_torch_s(name, on_gpu):
    x, w, bias, rest = arguments(name)
    made, wanted = (convolution_bias.convolution(x, w, bias, *rest), aten.convolution(x, w, bias, *rest))
    torch.testing.assert_close(made, wanted)
    assert made.stride() == wanted.stride()


@pytest.mark.parametrize("mask", [[True, True, True], [False, True, True], [False, False, True]])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_torch_s(name, mask, on_gpu):
    x, w, bias, rest = arguments(name)
    grad = torch.randn_like(aten.convolution(x, w, bias, *rest))
    args = (grad, x, w, list(bias.shape), *rest, mask)
    made, wanted = convolution_bias.convolution_backward(*args), aten.convolution_backward(*args)
    for own, theirs in ((m, w) for m, w, asked in zip(made, wanted, mask, strict=True) if asked):
        torch.testing.assert_close(own, theirs)


def test_on_a_gpu_the_graph_adds_and_sums():
    def step():
        x, w, bias, rest = arguments("plain", "cuda")
        out = aten.convolution(x, w, bias, *rest)
        sizes = list(bias.shape)
        return out.relu(), aten.convolution_backward(out, x, w, sizes, *rest, [True, True, True])

    graph = graph_of(step)
    assert {"aten.add.Tensor", "aten.sum.dim_IntList"} <= targets(graph)
    (call,) = (n for n in graph.graph.nodes if n.target is aten.convolution.default)
    assert call.args[2] is None


@pytest.mark.parametrize(("device", "name"), [("cpu", "plain"), ("cuda", "depthwise"), ("cuda", "none")])
def test_others_stay_whole(device, name, monkeypatch):
    monkeypatch.setitem(CASES, "depthwise", ((2, 4, 8, 8), (4, 1, 3, 3), 4, {"groups": 4}))
    monkeypatch.setitem(CASES, "none", CASES["plain"])

    def run():
        x, w, bias, rest = arguments(name, device)
        return aten.convolution(x, w, None if name == "none" else bias, *rest)

    assert "aten.add.Tensor" not in targets(graph_of(run))


def test_cudnn_computes_depthwise_convolutions_of_images_channels_last(monkeypatch):
    last = {"groups": 4, "memory_format": torch.channels_last}
    monkeypatch.setitem(CASES, "depthwise", ((2, 4, 8, 8), (4, 1, 3, 3), 4, last))

    def run():
        x, w, bias, rest = arguments("depthwise", "cuda")
        return aten.convolution(x, w, bias, *rest)

    assert "aten.add.Tensor" in targets(graph_of(run))
