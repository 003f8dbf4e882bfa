"""Schedule a graph whose matrix products are chosen by measurement on the device."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from fxstack_inductor.autotune.choices import SavedChoices
from fxstack_inductor.autotune.device import DeviceTimer, machine_name
from fxstack_inductor.autotune.search import choose
from fxstack_inductor.autotune.templates import Candidates, origin_of, product_kernels
from fxstack_inductor.errors import NotLowered
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.schedule.steps import Plan
from fxstack_inductor.tiling.product_tiles import ProductConfig

# Limits: the operations beside a library's product are timed as a copy of equally many bytes.

LOG = logging.getLogger(__name__)


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
