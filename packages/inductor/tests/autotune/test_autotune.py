"""Choices by measurement, with a timer whose times are given."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from product_graphs import OPTIONS, gelu, planner, product_kernels

from fxstack_inductor.autotune.choices import Choice, SavedChoices
from fxstack_inductor.autotune.tune import device_tuner, measure, tune_plan
from fxstack_inductor.errors import CudaError
from fxstack_inductor.schedule.steps import KernelStep
from fxstack_inductor.templates.kernels import triton_source
from fxstack_inductor.templates.product.tiling import CONFIGS, ProductConfig

FIRST, SECOND, *_ = CONFIGS


@dataclass
class FakeTimer:
    """``times`` by tile sizes (None: the library); an exception or a text (that the compiler gave) instead of a time."""

    times: dict
    asked: list = field(default_factory=list)

    def compile(self, kernels):
        found = {k.name: self.times.get(k.config, 1.0) for k in kernels}
        return {name: t if isinstance(t, str) else "" or CUBIN for name, t in found.items()}

    def kernel(self, kernel, cubin):
        assert cubin is CUBIN
        return self._time(kernel.config)

    def calls(self, calls):
        made = calls(lambda count, dtype: torch.empty(count, dtype=dtype, device="meta"))
        self.called = [call().shape for call in made]
        return self._time(None)

    def _time(self, config):
        self.asked.append(config)
        time = self.times.get(config, 1.0)
        if isinstance(time, Exception):
            raise time
        return time


CUBIN = object()


def gated(x, w, v):
    return (x @ w).relu() * (x @ v)


def tune(tmp_path, fn, times, count=2):
    timer = FakeTimer(times)
    return *tune_plan(*planner(fn, count), SavedChoices(tmp_path, "gpu"), timer), timer


def test_the_fastest_kernel_is_taken(tmp_path):
    made, configs, timer = tune(tmp_path, gelu, {None: 0.9, SECOND: 0.5})
    (kernel,) = product_kernels(made)
    assert configs == {kernel.name: SECOND}
    assert timer.called == [(1, 512, 512), (512 * 512 * 2,)]
    source = triton_source([kernel], configs)
    assert source.functions[kernel.name].constants["BM"] == SECOND.bm


def test_the_library_stays_where_it_wins(tmp_path):
    made, configs, _ = tune(tmp_path, gelu, {None: 0.5})
    assert not configs
    assert not list(product_kernels(made))
    assert [type(step).__name__ for step in made.steps] == ["ExternCall", "KernelStep"]


def test_times_equal_within_noise_go_to_the_first(tmp_path):
    assert not tune(tmp_path, gelu, {None: 1.0, SECOND: 0.99})[1]
    assert set(tune(tmp_path / "b", gelu, {None: 2.0, SECOND: 0.99})[1].values()) == {FIRST}


def test_a_choice_is_saved_and_not_measured_again(tmp_path):
    tune(tmp_path, gelu, {None: 2.0, SECOND: 0.5})
    _, configs, timer = tune(tmp_path, gelu, {None: 0.1})
    assert not timer.asked
    assert set(configs.values()) == {SECOND}


def test_the_saved_file_can_be_read(tmp_path):
    tune(tmp_path, gelu, {None: 2.0, SECOND: 0.5, FIRST: CudaError("no room")})
    (entry,) = json.loads((tmp_path / "gpu.json").read_text()).values()
    assert entry["origins"] == "mm, gelu"
    assert entry["micros"]["library"] == 2e6
    assert entry["skipped"] == {"128x256x64, 8 warps, 3 stages": "CudaError: no room"}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"k": 3}', '{"k": {"config": {"bm": 1}}}'])
def test_a_damaged_file_is_measured_anew(tmp_path, text):
    (tmp_path / "gpu.json").write_text(text)
    saved = SavedChoices(tmp_path, "gpu")
    assert saved.get("k", ProductConfig) is None
    saved.put("k", Choice(SECOND))
    assert saved.get("k", ProductConfig) == Choice(SECOND)


def test_what_fails_is_named_and_skipped():
    failures = {FIRST: "PassManager::run failed", SECOND: torch.OutOfMemoryError("too little"), None: 2.0}
    planned, rules = planner(gelu)
    (kernel,) = product_kernels(planned(rules))
    choice = measure(kernel, FakeTimer(failures), *rules.values())
    assert sorted(choice.skipped.values()) == [
        "CudaError: PassManager::run failed",
        "OutOfMemoryError: too little",
    ]
    assert choice.config == CONFIGS[2]


def test_the_library_is_left_when_everything_fails():
    failing = dict.fromkeys([None, *CONFIGS], CudaError("broken"))
    planned, rules = planner(gelu)
    (kernel,) = product_kernels(planned(rules))
    assert measure(kernel, FakeTimer(failing), *rules.values()).config is None


def test_products_that_remain_are_measured_as_they_fuse_then(tmp_path):
    made, configs, _ = tune(tmp_path, gated, {None: 2.0}, count=3)
    kernels = {s.kernel.name for s in made.steps if isinstance(s, KernelStep)}
    assert configs
    assert set(configs) <= kernels


def test_without_a_gpu_the_model_chooses():
    if not torch.cuda.is_available():
        assert device_tuner(OPTIONS, 0) is None


def test_names_of_machines_are_names_of_files():
    assert SavedChoices(Path("a"), "NVIDIA H100/80GB").path == Path("a/NVIDIA_H100_80GB.json")
