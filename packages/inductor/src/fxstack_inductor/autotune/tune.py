"""Schedule a graph whose template kernels are chosen by measurement on the device.

The possible kernels are compiled in parallel processes and timed on the device, beside the library's call. An
alternative that does not compile, launch, or fit into memory is named and skipped. Among equal times (within
noise) the first wins: the library, then large tiles.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping

import torch

from fxstack_inductor.autotune.candidates import Candidate, Candidates, candidate_kernels
from fxstack_inductor.autotune.choices import Choice, SavedChoices, config_name
from fxstack_inductor.autotune.device import DeviceTimer, machine_name
from fxstack_inductor.errors import CudaError, NotLowered
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.cubins import Cubin
from fxstack_inductor.schedule.steps import Plan
from fxstack_inductor.tiling.kernels import KernelConfig, TritonKernel

LOG = logging.getLogger(__name__)
NOISE = 0.02
FAILURES = (CudaError, RuntimeError, MemoryError)
"""Exceptions of launches and allocations; torch's OutOfMemoryError is a RuntimeError."""


def tune_plan(
    planned: Callable[[Candidates], Plan], chosen: Candidates, saved: SavedChoices, timer: DeviceTimer
) -> tuple[Plan, dict[str, KernelConfig]]:
    """Return the schedule, and the tile sizes of its template kernels by kernel name.

    ``planned`` makes a schedule in which the given nodes are kernels. A node whose library call wins is
    removed; the remaining nodes may then fuse differently, and are measured again.
    """
    while True:
        plan, configs, lost = planned(chosen), {}, set()
        for origin, kernel in candidate_kernels(plan, chosen):
            try:
                choice = choose(kernel, saved, timer, chosen[origin])
            except NotLowered:
                lost.add(origin)
                continue
            if choice.config is None:
                lost.add(origin)
            else:
                configs[kernel.name] = choice.config
        if not lost:
            return plan, configs
        chosen = {name: candidate for name, candidate in chosen.items() if name not in lost}


def device_tuner(options: InductorOptions, device: int) -> tuple[SavedChoices, DeviceTimer] | None:
    """Return the saved choices and the timer of GPU number ``device``; None (and a log entry) if there is no GPU."""
    if not torch.cuda.is_available():
        LOG.info("autotuning needs a GPU: the cost model chooses")
        return None
    major, minor = torch.cuda.get_device_capability(device)
    saved = SavedChoices(options.cache_dir / "choices", machine_name(device))
    return saved, DeviceTimer(device, 10 * major + minor, options)


def choose(kernel: Kernel, saved: SavedChoices, timer: DeviceTimer, candidate: Candidate) -> Choice:
    """Return the saved choice for ``kernel``. If there is none, measure the alternatives and save the choice."""
    key = hashlib.sha256(candidate.key(kernel).encode()).hexdigest()[:32]
    choice = saved.get(key, candidate.config_type)
    if choice is None:
        choice = measure(kernel, timer, candidate)
        saved.put(key, choice)
    return choice


def measure(kernel: Kernel, timer: DeviceTimer, candidate: Candidate) -> Choice:
    """Time the library's call and every alternative on the device, and return the fastest as a choice."""
    origins, alternatives = ", ".join(kernel.origins), candidate.alternatives(kernel)
    compiled = timer.compile(alternatives)
    times: dict[KernelConfig | None, float] = {}
    skipped: dict[str, str] = {}
    for alternative in (None, *alternatives):
        config = None if alternative is None else alternative.config
        try:
            if alternative is None:
                times[config] = timer.calls(lambda fill: candidate.library_calls(kernel, fill))
            else:
                times[config] = _timed(timer, alternative, compiled[alternative.name])
        except FAILURES as error:
            skipped[config_name(config)] = _in_short(error)
    for name, why in skipped.items():
        LOG.info("autotuning %s: %s skipped: %s", origins, name, why)
    micros = {config_name(c): round(1e6 * seconds, 2) for c, seconds in times.items()}
    return Choice(_best(times), origins, micros, skipped)


def _timed(timer: DeviceTimer, kernel: TritonKernel, cubin: Cubin | str) -> float:
    """Return the seconds of a launch. Without machine code, ``cubin`` is the reason, which ``CudaError`` reports."""
    if isinstance(cubin, str):
        raise CudaError(cubin)
    return timer.kernel(kernel, cubin)


def _best(times: Mapping[KernelConfig | None, float]) -> KernelConfig | None:
    """Return the first alternative whose time is within noise of the least.

    None stands for the library, and for no times.
    """
    if not times:
        return None
    limit = min(times.values()) * (1 + NOISE)
    return next(config for config, seconds in times.items() if seconds <= limit)


def _in_short(error: BaseException) -> str:
    """Return an exception as one line of at most 300 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
