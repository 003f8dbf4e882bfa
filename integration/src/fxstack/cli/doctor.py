"""``fxstack doctor``: check the tools of this machine that compiled programs need."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from fxstack_capture import native
from fxstack_inductor.cost.quantities import bytes_text
from fxstack_inductor.errors import InductorError
from fxstack_inductor.options import options_from_environment
from fxstack_inductor.runtime.cache import DAMAGED, OTHER_VERSION, Cache
from fxstack_inductor.runtime.toolchain import find_toolchain

PYTHONS = ((3, 11), (3, 14))
TORCHES = ((2, 11), (2, 15))
_PROBE = "extern int omp_get_max_threads(void);\nint fxstack_probe(void) { return omp_get_max_threads(); }\n"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: its subject, whether the check passed, the facts, and a fix."""

    name: str
    good: bool
    text: str
    fix: str = ""


def findings() -> list[Finding]:
    """Run every check. A check that raises gives a finding about its exception."""
    return [_run_check(check) for check in _CHECKS]


def _run_check(check: Callable[[], Finding]) -> Finding:
    """Return the finding of a check. An exception of the check becomes a finding too."""
    try:
        return check()
    except Exception as error:
        name = check.__name__.strip("_").replace("_", " ")
        return Finding(name, False, f"the check failed: {type(error).__name__}: {error}", "report this text")


def _in_range(
    name: str, version: tuple[int, int], supported: tuple[tuple[int, int], tuple[int, int]], text: str
) -> Finding:
    """Return a finding about a version: good if it is in the supported range, both ends included."""
    low, high = (f"{major}.{minor}" for major, minor in supported)
    good = supported[0] <= version <= supported[1]
    return Finding(name, good, text, "" if good else f"use {name} {low} to {high}")


def _python() -> Finding:
    return _in_range("Python", sys.version_info[:2], PYTHONS, f"{sys.version.split()[0]} ({sys.executable})")


def _torch() -> Finding:
    """Check the version of torch."""
    major, minor = torch.__version__.split(".")[:2]
    return _in_range(
        "torch", (int(major), int(minor)), TORCHES, f"{torch.__version__}, {torch.get_num_threads()} threads"
    )


def _frame_hook() -> Finding:
    """Check that the C extension of capture is loaded."""
    if native.AVAILABLE:
        return Finding("C extension of capture", True, "loaded")
    return Finding("C extension of capture", False, "missing", str(native.WHY_MISSING))


def _c_compiler() -> Finding:
    """Compile, load and call a function that uses OpenMP."""
    try:
        toolchain = find_toolchain(options_from_environment())
        with tempfile.TemporaryDirectory(prefix="fxstack-") as folder:
            source, library = Path(folder) / "probe.c", Path(folder) / "probe.so"
            source.write_text(_PROBE)
            toolchain.compile(source, library)
            threads = ctypes.CDLL(str(library)).fxstack_probe()
    except InductorError as error:
        return Finding(
            "C compiler and OpenMP",
            False,
            str(error).partition("\n")[0],
            "set FXSTACK_CC to a C compiler with OpenMP",
        )
    return Finding("C compiler and OpenMP", True, f"{toolchain.path}, {threads} OpenMP threads")


def _cache_on_disk() -> Finding:
    """Check that the cache can be written, and that no entry is damaged."""
    options = options_from_environment()
    folder = Path(options.cache_dir)
    if not options.use_cache:
        return Finding("cache on disk", True, "turned off by FXSTACK_INDUCTOR_NO_CACHE")
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        fix = "make it writable, or set FXSTACK_INDUCTOR_CACHE_DIR to another folder"
        return Finding("cache on disk", False, f"{folder} cannot be written", fix)
    if not folder.is_dir():
        return Finding("cache on disk", True, f"{folder}, not made yet")
    cache = Cache(folder, options.cache_limit)
    states = Counter(cache.state(entry.name) for entry in cache.entries())
    damaged = states[DAMAGED]
    text = f"{folder}: {states.total()} entries, {bytes_text(cache.size())}, {damaged} damaged"
    if other := states[OTHER_VERSION]:
        text += f", {other} {OTHER_VERSION}"
    return Finding("cache on disk", not damaged, text, "fxstack cache check" if damaged else "")


def _gpu() -> Finding:
    """Check that Triton is installed if there is a GPU."""
    if not torch.cuda.is_available():
        return Finding("GPU", True, "none; graphs are compiled for the CPU")
    names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    triton = importlib.util.find_spec("triton") is not None
    text = f"{', '.join(names)}; Triton is {'installed' if triton else 'missing'}"
    return Finding(
        "GPU",
        triton,
        text,
        "" if triton else "pip install triton; without it, CUDA graphs run in eager torch",
    )


def _variables() -> Finding:
    """List the environment variables of fxstack."""
    names = sorted(name for name in os.environ if name.startswith("FXSTACK"))
    return Finding(
        "environment", True, ", ".join(f"{n}={os.environ[n]}" for n in names) or "no FXSTACK variables"
    )


_CHECKS = (_python, _torch, _frame_hook, _c_compiler, _cache_on_disk, _gpu, _variables)
