"""Schedule a graph whose matrix products are chosen by measurement on the device.

The possible kernels are compiled in parallel processes and timed on the device. The library's product is
timed together with a copy of as many bytes as a kernel for the remaining operations would move. An
alternative that does not compile, launch, or fit into memory is named and skipped. Among equal times (within
noise) the first wins: the library, then large tiles.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import partial

import torch

from fxstack_inductor.autotune.choices import Choice, SavedChoices, config_name
from fxstack_inductor.autotune.device import DeviceTimer, machine_name
from fxstack_inductor.autotune.templates import Candidate, Candidates, origin_of, product_kernels
from fxstack_inductor.codegen.triton.module import triton_kernel
from fxstack_inductor.cost.products import does_more, work_of
from fxstack_inductor.errors import CudaError, NotLowered
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.cubins import Cubin
from fxstack_inductor.schedule.steps import Plan
from fxstack_inductor.tiling.kernels import TritonKernel
from fxstack_inductor.tiling.product_tiles import CONFIGS, ProductConfig, fitting_configs, tile_product

# Limits: the operations beside a library's product are timed as a copy of equally many bytes.

LOG = logging.getLogger(__name__)
NOISE = 0.02
FAILURES = (CudaError, RuntimeError, MemoryError)
"""Exceptions of launches and allocations; torch's OutOfMemoryError is a RuntimeError."""


def tuned(
    planned: Callable[[Candidates], Plan], chosen: Candidates, saved: SavedChoices, timer: DeviceTimer
) -> tuple[Plan, dict[str, ProductConfig]]:
    """Return the schedule, and the tile sizes of its products by kernel name.

    ``planned`` makes a schedule in which the products of the given nodes are kernels. A product whose library
    call wins is removed; the remaining products may then fuse differently, and are measured again.
    """
    while True:
        plan, configs, lost = planned(chosen), {}, set()
        for kernel in product_kernels(plan):
            origin = origin_of(kernel, chosen)
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
        chosen = {name: one for name, one in chosen.items() if name not in lost}


def device_tuner(options: InductorOptions, device: int) -> tuple[SavedChoices, DeviceTimer] | None:
    """Return the choices and the timer of a device; None (and a log entry) if there is no GPU."""
    if not torch.cuda.is_available():
        LOG.info("autotuning needs a GPU: the cost model chooses")
        return None
    major, minor = torch.cuda.get_device_capability(device)
    saved = SavedChoices(options.cache_dir / "choices", machine_name(device))
    return saved, DeviceTimer(device, 10 * major + minor, options)


def choose(kernel: Kernel, saved: SavedChoices, timer: DeviceTimer, one: Candidate) -> Choice:
    """Return the saved choice for ``kernel``; without one, measure and save."""
    key = _key(kernel, one)
    found = saved.get(key)
    if found is None:
        found = measure(kernel, timer, one)
        saved.put(key, found)
    return found


def _key(kernel: Kernel, one: Candidate) -> str:
    made = triton_kernel(kernel, "KERNEL", CONFIGS[0])
    text = f"{made.text}\n{made.signature}\n{one.in_library} {one.dtype}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def measure(kernel: Kernel, timer: DeviceTimer, one: Candidate) -> Choice:
    """Time every alternative and return the choice."""
    origins, tiling = ", ".join(kernel.origins), tile_product(kernel)
    configs = fitting_configs(tiling)
    made = [triton_kernel(kernel, f"kernel_{k}", config) for k, config in enumerate(configs)]
    compiled = timer.compile(made)
    work, with_rest = work_of(tiling), does_more(kernel, one.in_library)
    runs: dict[ProductConfig | None, Callable[[], float]] = {
        None: lambda: timer.library(work, one.dtype, with_rest=with_rest)
    }
    for config, tiled in zip(configs, made, strict=True):
        runs[config] = partial(_timed, timer, tiled, compiled[tiled.name])
    times: dict[ProductConfig | None, float] = {}
    skipped: dict[str, str] = {}
    for alternative, run in runs.items():
        try:
            times[alternative] = run()
        except FAILURES as error:
            skipped[config_name(alternative)] = _in_short(error)
    for name, why in skipped.items():
        LOG.info("autotuning %s: %s skipped: %s", origins, name, why)
    micros = {config_name(c): round(1e6 * seconds, 2) for c, seconds in times.items()}
    return Choice(_best(times), origins, micros, skipped)


def _timed(timer: DeviceTimer, kernel: TritonKernel, cubin: Cubin | str) -> float:
    if isinstance(cubin, str):
        raise CudaError(cubin)
    return timer.kernel(kernel, cubin)


def _best(times: Mapping[ProductConfig | None, float]) -> ProductConfig | None:
    if not times:
        return None
    limit = min(times.values()) * (1 + NOISE)
    return next(config for config, seconds in times.items() if seconds <= limit)


def _in_short(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
