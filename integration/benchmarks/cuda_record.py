"""Records one step of a compiled model over the stand-ins for CUDA: its launches, what launched each, and the peak of memory.

``environment`` makes the variables under which ``record`` runs in a process of its own. A launch is a dict of JSON:

- ``name`` of the kernel, ``grid``, ``threads`` of a block, and ``bytes`` of a copy or a memset;
- ``kernel``: for a Triton kernel its key in the folder ``kernels``, where ``<key>.ttir`` is its text and ``<key>.json`` has
  the widths of its memory accesses and the ``OPTIONS`` of its compilation; ``parameters`` are the kernel's arguments:
  addresses and integers;
- ``op``: for other launches the operator of ATen that launched it, with the ``shapes`` and ``dtypes`` of its arguments,
  its ``values`` that are not tensors, and ``call``, which the launches of one call share.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STAND_IN = Path(__file__).parents[1] / "tests" / "stand_in"
WARM_UP = 3
ACCESS = re.compile(r"\b(?:ld|st|red|atom)\.global[\w.:]*?(?:\.v(\d))?\.[bfsu](\d+)")
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion", "enable_reflect_ftz", "debug")
"""What Triton needs beside a kernel's text to compile it again."""
NOT_WORK = ("<record", "<wait", "<stream sync", "<device sync", "<event sync")


def build_stand_ins(folder: Path) -> None:
    """Compile the stand-ins into ``folder``, once; raises RuntimeError for a torch without CUDA."""
    if (folder / "libcudart.so.13").exists():
        return
    sys.path.insert(0, str(STAND_IN))
    import build

    folder.mkdir(parents=True, exist_ok=True)
    build.build(folder)


def environment(libraries: Path, caches: Path, images: Path) -> dict[str, str]:
    """The variables of a process that computes on GPUs that are not there, and leaves the loaded machine code in ``images``."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(libraries),
        "TRITON_LIBCUDA_PATH": str(libraries),
        "LD_PRELOAD": str(libraries / "libcudart.so.13"),
        "FAKE_CUDA_IMAGES": str(images),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "torch"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "FXSTACK_INDUCTOR_CACHE_DIR": str(caches / "fxstack"),
        # Kernels compute nothing, so numbers of dropout cannot be compared.
        "FXSTACK_DROPOUT": os.environ.get("FXSTACK_DROPOUT", "generated"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_OFFLINE": "1",
    }


def compiler(system: str) -> Callable[[Any], Any]:
    """``torch.compile`` or ``fxstack``, whose host program is Python: then torch's profiler sees the operators' shapes."""
    if system == "torch.compile":
        return torch.compile
    import fxstack

    return lambda model: fxstack.compile(model, options={"host": "python"})


def record(step: Callable[[], None], kernels: Path) -> dict[str, Any]:
    """The launches of ``step``, which runs once after some to warm up, and its peak of memory beyond that at its begin."""
    sys.path.insert(0, str(STAND_IN))
    import build

    records = build.Records()
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"  # 32 MiB for products would hide what else is allocated
    start = time.perf_counter()
    for _ in range(WARM_UP):
        step()
    profile = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, acc_events=True
    )
    profile.start()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    records.clear()
    step()
    calls = records.details()
    peak = torch.cuda.max_memory_allocated() - before
    profile.stop()
    operators = Operators(profile.profiler.kineto_results.events())
    found = Kernels(Path(os.environ["FAKE_CUDA_IMAGES"]), Path(os.environ["TRITON_CACHE_DIR"]), kernels)
    launches = [launch(call, operators, found) for call in calls if not call["name"].startswith(NOT_WORK)]
    return {"peak": peak, "seconds": time.perf_counter() - start, "launches": launches}


def launch(call: Mapping[str, Any], operators: Operators, kernels: Kernels) -> dict[str, Any]:
    """The record of one launch in JSON."""
    made = {"name": call["name"], "threads": call["threads"], "grid": [call["grid"], 1, 1]}
    if call["image"]:
        grid, arguments = call["parameters"][:3], call["parameters"][3:]
        return {**made, "grid": grid, "parameters": arguments, "kernel": kernels.key(call["image"])}
    if made["name"].startswith("<"):
        made |= {"bytes": call["grid"]}
    return {**made, "op": operators.at(call["time"])}


class Operators:
    """The operators of ATen in a profile, by time."""

    def __init__(self, events: Any) -> None:
        own = (e for e in events if e.name().startswith("aten::"))
        self._events = sorted(own, key=lambda e: e.start_ns())
        self._starts = [e.start_ns() for e in self._events]

    def at(self, moment: int) -> dict[str, Any] | None:
        """The innermost operator that runs at ``moment``, in nanoseconds since 1970."""
        for event in reversed(self._events[: bisect_right(self._starts, moment)]):
            if event.start_ns() + event.duration_ns() >= moment:
                return {
                    "name": event.name().removeprefix("aten::"),
                    "call": event.start_ns(),
                    "shapes": event.shapes(),
                    "dtypes": event.dtypes(),
                    "values": [
                        v if isinstance(v, int | float | bool | list) else None
                        for v in event.concrete_inputs()
                    ],
                }
        return None


class Kernels:
    """Finds the text of a loaded kernel by its machine code, and keeps the text in ``folder``."""

    def __init__(self, images: Path, cache: Path, folder: Path) -> None:
        self._images, self._folder, self._keys = images, folder, {}
        self._texts = {_digest(path): path for path in cache.glob("*/*.cubin")}
        folder.mkdir(parents=True, exist_ok=True)

    def key(self, image: int) -> str:
        """The key of the kernel whose machine code was loaded as number ``image``."""
        if image not in self._keys:
            self._keys[image] = self._keep(_digest(self._images / str(image)))
        return self._keys[image]

    def _keep(self, key: str) -> str:
        text = self._folder / f"{key}.ttir"
        if key in self._texts and not text.exists():
            path = self._texts[key]
            widths = Counter(
                int(count or 1) * int(bits) // 8
                for count, bits in ACCESS.findall(path.with_suffix(".ptx").read_text())
            )
            compiled = json.loads(path.with_suffix(".json").read_text())
            found = {"widths": widths, **{name: compiled[name] for name in OPTIONS}}
            (self._folder / f"{key}.json").write_text(json.dumps(found))
            text.write_text(path.with_suffix(".ttir").read_text())
        return key


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:20]
