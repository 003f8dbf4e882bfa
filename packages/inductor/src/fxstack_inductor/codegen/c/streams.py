"""Write large results past the caches.

A store to memory that is not in a cache reads the line first, and the line is written back later: two transfers of one line.
Non-temporal stores of whole lines transfer it once. A loop that leaves its results in an array on the stack, which ``stream``
of ``prelude.h`` then writes, takes 0.5 to 0.7 of the time (AMD EPYC, tensors of 16 MB). Smaller tensors stay in the last-level
cache, where their readers find them.

Limits: AMD's processors on Linux, sizes known at compile time. Nothing was measured on other processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fxstack_inductor.ir.expr import Expr, Var
from fxstack_inductor.ir.kernel import Kernel, Store, once_per_kernel

LINE = 64
"""Bytes of a line of the caches."""
MANY_BYTES = 2048
"""The least bytes at once that need not begin and end with a line."""
FEW, SHORT_RUN = 2, 64
"""More results than this take turns after so many points: the longer the turns of many, the slower (1.3 to 0.8 times as fast)."""
INFORMATION, CACHE_SIZE = Path("/proc/cpuinfo"), Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@cache
def least_bytes() -> int | None:
    """Return the bytes of a kernel's tensors from which on its results go past the caches of this machine; None: never."""
    return bytes_past(INFORMATION, CACHE_SIZE)


def bytes_past(information: Path, cache_size: Path) -> int | None:
    """Return the same from what Linux tells of a processor: three quarters of the last-level cache."""
    try:
        words, size = set(information.read_text().split()), cache_size.read_text().strip()
    except OSError:
        return None
    if not {"AuthenticAMD", "avx2"} <= words or (unit := UNITS.get(size[-1:])) is None:
        return None
    return int(size[:-1]) * unit * 3 // 4


@once_per_kernel
def streamed(kernel: Kernel) -> frozenset[str]:
    """Return the buffers that ``kernel`` writes past the caches: none if its tensors fit there, and none that it reads."""
    least = least_bytes()
    sizes = [0 if ref.by_value else (ref.numel * ref.dtype.itemsize).as_int() for ref in kernel.buffers]
    known = [size for size in sizes if size is not None]
    if least is None or len(known) < len(sizes) or sum(known) < least or kernel.scatters:
        return frozenset()
    return kernel.written - kernel.read


def streamed_stores(
    kernel: Kernel, stores: Sequence[Store], var: Var, points: int, *, divisible: bool
) -> list[Store]:
    """Return those of ``stores`` that a loop over ``var`` writes past the caches, ``points`` neighbours at once.

    ``divisible``: the loop may write fewer at once.
    """
    found = [store for store in stores if store.buffer in streamed(kernel) and not store.op]
    if len(found) > FEW and points > SHORT_RUN and not divisible:
        return []
    most = points if len(found) <= FEW else min(points, SHORT_RUN)
    sizes = {ref.name: ref.dtype.itemsize for ref in kernel.buffers}
    return [store for store in found if _in_lines(store.index, var, most, sizes[store.buffer])]


def _in_lines(index: Expr, var: Var, points: int, size: int) -> bool:
    """Whether ``points`` elements of ``size`` bytes along ``var`` are whole lines, or so many that their ends do not count."""
    starts = (factor for monomial, factor in index.terms if monomial != (var,))
    whole = points * size % LINE == 0 and all(factor * size % LINE == 0 for factor in starts)
    return whole or points * size >= MANY_BYTES


def fenced(lines: list[str]) -> list[str]:
    """Return the lines of a thread, with an end that other threads find its results at, if it writes past the caches."""
    return [*lines, "  FENCE"] if any(line.lstrip().startswith("stream(") for line in lines) else lines
