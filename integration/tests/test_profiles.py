"""What a profile of ``torch.profiler`` shows of compiled code."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import fxstack
from fxstack_capture.guards.tensor_build import TENSOR_CHECKS


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x)).softmax(-1)


X = torch.randn(4, 8)


def names(run):
    """The names in a profile of a call of ``run``, which was compiled before."""
    if not TENSOR_CHECKS.wait():
        pytest.skip(f"regions need the compiled checks: {TENSOR_CHECKS.why_not}")
    run()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    return {event.key for event in seen.key_averages()}


@pytest.fixture(scope="module")
def step():
    net = fxstack.compile(Net())
    return names(lambda: net(X).sum().backward())


def test_a_compiled_region_is_named_by_the_users_function(step):
    (region,) = [name for name in step if name.startswith("Torch-Compiled Region: ")]
    assert region == f"Torch-Compiled Region: Net.forward ({__file__}:{Net.forward.__code__.co_firstlineno})"


def test_the_autograd_function_has_torchs_name(step):
    assert {"CompiledFunction", "CompiledFunctionBackward"} <= step


def test_kernels_are_named_by_their_operators(step):
    fused = [name for name in step if name.startswith("fused_")]
    assert any("gelu" in name for name in fused)
    assert any("softmax_backward" in name for name in fused)


def test_operators_that_the_host_program_calls_are_there(step):
    assert "aten::mm" in step or "aten::addmm" in step


def test_inference_has_regions_and_kernels():
    with torch.no_grad():
        net = fxstack.compile(Net())
        seen = names(lambda: net(X))
    assert any(name.startswith("Torch-Compiled Region: Net.forward") for name in seen)
    assert any(name.startswith("fused_") for name in seen)


def test_an_exception_ends_the_region():
    @fxstack.compile(backend="eager")
    def index(x, at):
        return x[at] + 1

    def both():
        index(X, torch.tensor([0]))
        with pytest.raises(IndexError):
            index(X, torch.tensor([9]))

    if not TENSOR_CHECKS.wait():
        pytest.skip(f"regions need the compiled checks: {TENSOR_CHECKS.why_not}")
    both()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        both()
        X.sin()
    (outside,) = [event for event in seen.events() if event.key == "aten::sin"]
    assert outside.cpu_parent is None
    assert [e.count for e in seen.key_averages() if e.key.startswith("Torch-Compiled Region: ")] == [2]
