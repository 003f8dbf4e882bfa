"""The choice of a target, by the tensors of a graph and by name."""

import pytest
import torch
from inductor_checks import FAST, trace
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, compile_graph, lower
from fxstack_inductor.targets.all_targets import TARGETS, devices_with_attention, target_of

X = torch.randn(4, 4)


def graph_on(*devices):
    with FakeTensorMode():
        inputs = [torch.empty(4, device=device) for device in devices]
    return make_fx(lambda *args: [x + 1 for x in args], tracing_mode="fake")(*inputs)


@pytest.mark.parametrize(
    ("devices", "named", "name"),
    [
        (["cpu"], None, "c"),
        ([], None, "c"),
        (["meta"], None, "c"),
        (["cuda"], None, "triton"),
        (["cpu", "cuda"], None, "triton"),
        (["cpu"], "cuda", "triton"),
        (["cpu"], "cuda:sm_90", "triton"),
    ],
)
def test_the_target_of_a_graph(devices, named, name):
    assert target_of(graph_on(*devices), named).name == name


@pytest.mark.parametrize("name", ["tpu", "cpu:avx", "cuda:sm_1"])
def test_unknown_targets_are_errors(name):
    with pytest.raises(ValueError, match="target"):
        lower(trace(torch.sin, X), target=name)


def test_an_unknown_option_is_an_error():
    with pytest.raises(ValueError, match="known are 'cpu' and 'cuda'"):
        compile_graph(trace(torch.sin, X), (), InductorOptions(target="tpu"))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_target_lowers_by_name(target):
    lowered = lower(trace(torch.sin, X), (), FAST, target=target.device)
    assert "kernel_0" in lowered.kernels
    assert "def call" in lowered.host


def test_attention_operators_become_kernels_on_these_devices():
    assert devices_with_attention(None) == devices_with_attention("cpu") == ("cuda",)
    assert devices_with_attention("cuda") == ("cuda", "cpu")
