"""The timer of a real device, run on CPU against a driver that records: every line, no times."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from fake_cuda import FakeCuda
from product_graphs import gelu, planner, product_kernels

from fxstack_inductor import InductorOptions, torch_compat
from fxstack_inductor.autotune import device
from fxstack_inductor.autotune.candidates import candidate_kernels
from fxstack_inductor.runtime.cubins import Cubin
from fxstack_inductor.templates.kernels import triton_kernel
from fxstack_inductor.templates.product.tiling import CONFIGS


class Event:
    """One millisecond between any two."""

    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        pass

    def synchronize(self):
        pass

    def elapsed_time(self, _other):
        return 1.0


@pytest.fixture
def made(tmp_path, monkeypatch):
    cuda = FakeCuda(tmp_path, params=3)
    monkeypatch.setattr(device, "Driver", lambda: cuda.driver)
    monkeypatch.setattr(device.DeviceTimer, "_place", torch.device("cpu"))
    monkeypatch.setattr(device, "FLUSHED_BYTES", 16)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda _number: nullcontext())
    monkeypatch.setattr(torch_compat, "cuda_getCurrentRawStream", lambda number: 11 + number)
    return cuda, device.DeviceTimer(0, 90, InductorOptions(cache_dir=tmp_path))


def kernel():
    planned, rules = planner(gelu, size=64)
    (found,) = product_kernels(planned(rules))
    return found


def test_a_kernel_is_launched_on_buffers_of_its_sizes(made):
    cuda, timer = made
    state = torch.get_rng_state()
    tiled = triton_kernel(kernel(), "kernel_0", CONFIGS[5])
    cubin = Cubin("kernel_0", b"\x7fELF", parameters=5, threads=128, shared=0, scratch=0)
    assert timer.kernel(tiled, cubin) == 1e-3
    assert len(cuda.calls) == device.TIMED_RUNS + 2
    assert {(call.stream, call.grid) for call in cuda.calls} == {(11, 1)}
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("rest", [False, True])
def test_the_library_is_timed_with_what_it_leaves(made, rest):
    _, timer = made
    fn = gelu if rest else torch.mm
    planned, rules = planner(fn, size=64)
    ((_, found),) = candidate_kernels(planned(rules), rules)
    (candidate,) = rules.values()
    with torch.autocast("cpu", torch.bfloat16):
        assert timer.calls(lambda fill: candidate.library_calls(found, fill)) == (2e-3 if rest else 1e-3)


def test_a_machine_is_named_by_what_times_depend_on(made, monkeypatch):
    properties = SimpleNamespace(name="NVIDIA H100")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _number: properties)
    assert device.machine_name(0).startswith("NVIDIA H100-driver13000-cuda")
