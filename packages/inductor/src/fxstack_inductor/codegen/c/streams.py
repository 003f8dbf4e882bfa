"""Write large results past the caches.

A store to memory that is not in a cache reads the line first, and the line is written back later: two transfers of one line.
Non-temporal stores of whole lines transfer it once. A loop that leaves its results in an array on the stack, which ``stream``
of ``prelude.h`` then writes, takes 0.5 to 0.7 of the time (AMD EPYC, tensors of 16 MB). Smaller tensors stay in the last-level
cache, where their readers find them.

Limits: AMD's processors on Linux, sizes known at compile time. Nothing was measured on other processors.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fxstack_inductor.codegen.c.reductions.saved import SLOW
from fxstack_inductor.codegen.c.sharing import LINE
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import Expr, Var, product
from fxstack_inductor.ir.kernel import Compute, Kernel, Store, once_per_kernel
from fxstack_inductor.ir.scalar_ops import EXPENSIVE

WORD = 4
"""Bytes of a word."""
TURN = 512
"""The most bytes of a result that are written at once: more fill the queue of stores, and the next points wait."""
LONG = 4096
"""The least bytes of a row that begins and ends with parts of lines."""
SHARE, LARGE_SHARE = 2, 0.75
"""The least time of the memory, in times of the arithmetic, for results to go past the caches; the second number is that of
results that are a quarter larger than the last-level cache (1.0 to 1.5 times as fast, of eleven programs one 0.8 times).
"""
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
    number, unit = size[:-1], UNITS.get(size[-1:])
    if not {"AuthenticAMD", "avx2"} <= words or unit is None or not number.isdecimal():
        return None
    return int(number) * unit * 3 // 4


@once_per_kernel
def streamed(kernel: Kernel) -> frozenset[str]:
    """Return the buffers that ``kernel`` writes past the caches: none if its tensors fit there, and none that it reads.

    Kernels that compute for longer than half of the memory's time gain nothing; those whose results the last-level cache cannot
    hold still gain if they compute for a third longer than they move memory.
    """
    least, written = least_bytes(), kernel.written - kernel.read
    moved = _bytes(kernel, {ref.name for ref in kernel.buffers})
    if least is None or moved is None or moved < least or kernel.scatters:
        return frozenset()
    large = (_bytes(kernel, written) or 0) >= least * 5 // 3
    return written if moved >= work(kernel) * (LARGE_SHARE if large else SHARE) else frozenset()


def _bytes(kernel: Kernel, names: Container[str]) -> int | None:
    """Return the bytes of the tensors with these names, or None if a size is unknown."""
    refs = [ref for ref in kernel.buffers if ref.name in names and not ref.by_value]
    known = [size for ref in refs if (size := (ref.numel * ref.dtype.itemsize).as_int()) is not None]
    return sum(known) if len(known) == len(refs) else None


def work(kernel: Kernel) -> int:
    """Return how many bytes move to or from memory in the time that the operations of all inner points take.

    A vector of functions takes about as long as three vectors of memory, a division as one, an addition as an eighth.
    """
    points = product(loop.extent for loop in (*kernel.outer, *kernel.inner)).as_int() or 0
    inner = analyse(kernel).inner
    found = [
        v for k, v in enumerate(kernel.values) if isinstance(v, Compute) and (inner[k] or not kernel.inner)
    ]
    eighths = (24 if v.op in EXPENSIVE else 8 if v.op in SLOW else 1 for v in found)
    return points * sum(each * int(v.dtype.itemsize) for each, v in zip(eighths, found, strict=True)) // 8


@dataclass(frozen=True, slots=True)
class Streams:
    """The stores of a loop that go past the caches."""

    stores: Sequence[Store] = ()
    run: int | None = None
    """The most points at once, if the loop has no other bound."""
    skewed: bool = False
    """Whether the loop begins at points of other places in lines; all runs but the first begin with a line of the first store."""


NONE = Streams()


def streams_of(
    kernel: Kernel, stores: Sequence[Store], var: Var, extent: int | None, chunk: int | None, *, skew: bool
) -> Streams:
    """Return those of ``stores`` that a loop over ``var`` writes past the caches.

    ``chunk``: how many points the loop has at once; None: it may have any number. ``skew``: the first run may be shorter.
    """
    sizes = {ref.name: ref.dtype.itemsize for ref in kernel.buffers}
    found = [store for store in stores if store.buffer in streamed(kernel) and not store.op]
    if not found:
        return NONE
    widest = max(sizes[store.buffer] for store in found)
    run = TURN // widest if chunk is None else chunk
    points = run if extent is None else min(run, extent)
    kept = [s for s in found if _in_lines(s.index, var, points, sizes[s.buffer])]
    if kept:
        return Streams(kept, run if chunk is None else None)
    alike = all(s.index == found[0].index and sizes[s.buffer] == widest for s in found)
    # Halves of rows that begin inside of lines were 0.6 times as fast.
    long = widest >= WORD and (extent is None or extent * widest >= LONG)
    return Streams(found, run, skewed=True) if skew and chunk is None and alike and long else NONE


def _in_lines(index: Expr, var: Var, points: int, size: int) -> bool:
    """Whether ``points`` elements of ``size`` bytes along ``var`` are whole lines.

    Parts of lines, written in the usual way in between, take longer than all the rest saves.
    """
    starts = (factor for monomial, factor in index.terms if monomial != (var,))
    return points * size % LINE == 0 and all(factor * size % LINE == 0 for factor in starts)


def fenced(lines: list[str]) -> list[str]:
    """Return the lines of a thread, with an end that other threads find its results at, if it writes past the caches."""
    return [*lines, "  FENCE"] if any(" stream(" in line for line in lines) else lines
