"""Copy blocks of rows transposed: vector loops whose lanes are rows then read and write neighbours in memory.

An access along a row, in a loop whose lanes are rows, has a cache line of its own for each lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from fxstack_inductor.codegen.c.ops import STORAGE
from fxstack_inductor.codegen.c.text import Names
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import ZERO, Expr
from fxstack_inductor.ir.kernel import Kernel, Load, Loop, Store, operands

MIN_POINTS = 16
"""Shorter loops are not worth copies of blocks."""
MAX_STEP = 4
"""The elements of a row may lie this far apart: the elements between are copied, too."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The accesses along ``inner`` that go through transposed copies with the rows of ``row`` as lanes."""

    row: Loop
    inner: Loop
    loads: dict[int, tuple[Load, int]]
    """By position: the load, and the step between the elements of a row, which may be -1."""
    stores: list[Store]

    def __bool__(self) -> bool:
        return bool(self.loads or self.stores)

    def part(self, computed: Collection[int], stores: Sequence[Store]) -> Copies:
        """Return the copies that a loop with these values and stores needs."""
        loads = {k: v for k, v in self.loads.items() if k in computed}
        return Copies(self.row, self.inner, loads, [s for s in self.stores if s in stores])

    def most(self, count: int) -> Copies:
        """Return the first ``count`` copies."""
        loads = dict(list(self.loads.items())[:count])
        return Copies(self.row, self.inner, loads, self.stores[: count - len(loads)])

    def width(self, dtypes: Mapping[str, torch.dtype]) -> int:
        """Return the bytes of all copies for each element of each row."""
        moved = [(v.buffer, step) for v, step in self.loads.values()] + [(s.buffer, 1) for s in self.stores]
        return sum(dtypes[buffer].itemsize * abs(step) for buffer, step in moved)

    def enter(self, names: Names, start: str, count: str, shape: tuple[int, int]) -> Iterator[str]:
        """Yield C that copies ``count`` elements of ``width`` rows, from ``start`` on, and declares results.

        ``shape``: the most elements, and the most rows. The first row is ``tile``.
        """
        size, rows = shape
        at = self.inner.var.name if start == "0" else f"({self.inner.var.name} - {start})"
        for k, (load, step) in self.loads.items():
            between, address = self._between(load.index), self._address(names, load.buffer, load.index, start)
            span = count if abs(step) == 1 else f"({count} - 1) * {step} + 1"
            if step < 0:  # the copy has the elements as they lie
                address = f"{address} - ({count} - 1)"
            kind, word = STORAGE[names.dtypes[load.buffer]], _word(names, load.buffer)
            yield f"{kind} turned{k}[{(size - 1) * abs(step) + 1}][{rows}] __attribute__((aligned(64)));"
            yield f"transpose_{word}((const {word}*)({address}), {between}, ({word}*)turned{k}, {rows}, {span}, width);"
            place = {1: at, -1: f"{count} - 1 - {at}"}.get(step, f"{at} * {step}")
            names.staged[k] = f"turned{k}[{place}]"
        for n, store in enumerate(self.stores):
            kind = STORAGE[names.dtypes[store.buffer]]
            yield f"{kind} joined{n}[{size}][{rows}] __attribute__((aligned(64)));"
            names.targets[store] = f"joined{n}[{at}]"

    def leave(self, names: Names, start: str, count: str, rows: int) -> Iterator[str]:
        """Yield C that writes the results of the block into their buffers."""
        for n, store in enumerate(self.stores):
            between, address = (
                self._between(store.index),
                self._address(names, store.buffer, store.index, start),
            )
            word = _word(names, store.buffer)
            yield f"transpose_{word}((const {word}*)joined{n}, {rows}, ({word}*)({address}), {between}, width, {count});"

    def _between(self, index: Expr) -> str:
        """Return, as C, the elements from row to row."""
        step = index.coefficient(self.row.var)
        assert step is not None
        return c_index(step)

    def _address(self, names: Names, buffer: str, index: Expr, start: str) -> str:
        """Return, as C, the address of element ``start`` of row ``tile``."""
        step = index.coefficient(self.inner.var)
        first = c_index(index.subs({self.row.var: ZERO, self.inner.var: ZERO}))
        assert step is not None
        return (
            f"{names.buffers[buffer]} + {first} + tile * ({self._between(index)}) + {start} * {c_index(step)}"
        )


def _word(names: Names, buffer: str) -> str:
    """Return the type as which elements are moved."""
    return f"uint{8 * names.dtypes[buffer].itemsize}_t"


def copies(kernel: Kernel, row: Loop, inner: Loop | None = None) -> Copies:
    """Return the accesses along ``inner``, by default the last inner loop, for which copies with rows as lanes are possible."""
    inner = inner or kernel.inner[-1]
    loads = {
        k: (v, step)
        for k, v in enumerate(kernel.values)
        if isinstance(v, Load) and v.mask is None and not operands(v) and v.buffer not in kernel.written
        if (step := along(v.index, inner, row)) and step <= MAX_STEP
    }
    stores = [s for s in kernel.stores if not s.op and along(s.index, inner, row) == 1]
    return Copies(row, inner, loads, stores)


def worthwhile(found: Copies) -> Copies | None:
    """Return the copies, if blocks of rows fill cache lines; None if the loops are too short or nothing is copied."""
    extents = (found.row.extent.as_int(), found.inner.extent.as_int())
    long = all(extent is None or extent >= MIN_POINTS for extent in extents)
    return found if found and long else None


def along(index: Expr, inner: Loop, row: Loop) -> int:
    """Return the step between the elements of a row, at least -1; 0 for an access that does not run along rows in equal steps."""
    step, beyond = index.coefficient(inner.var), index.coefficient(row.var)
    number = None if step is None else step.as_int()
    if number is None or number < -1 or number == 0 or beyond is None or beyond == 0:
        return 0
    far = beyond.as_int()
    return 0 if far is not None and abs(far) <= abs(number) else number
