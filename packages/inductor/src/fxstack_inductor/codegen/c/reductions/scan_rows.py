"""Write scans along memory: a block of rows at once, whose running values are the lanes of vectors.

One running value waits for itself in every element. Here the tiles of ``ROWS`` rows are transposed on the stack, so
that one vector has the next element of every row. Each row is still taken in its order: results do not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from fxstack_inductor.codegen.c.claims import Claim
from fxstack_inductor.codegen.c.halves import halves
from fxstack_inductor.codegen.c.loops import LoopWriter
from fxstack_inductor.codegen.c.ops import STORAGE
from fxstack_inductor.codegen.c.ranges import Range, for_head, ranges
from fxstack_inductor.codegen.c.reductions.phases import (
    TILE,
    Phase,
    Planner,
    arrays,
    scan_body,
    tiled,
    vector_body,
)
from fxstack_inductor.codegen.c.reductions.scan import ScanText
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import ZERO, Expr, integer
from fxstack_inductor.ir.kernel import Kernel, Load, Loop, Reduce, Scan, Store, index_operands, operands
from fxstack_inductor.ir.scalar_ops import scan_waits

ROWS = 8
"""The rows of a block: a vector of 32-bit numbers, with the transposition of ``prelude.h``, and two of doubles."""
WORD = 8
"""Bytes of the elements that are not worth transpositions."""
NEAR = 4096
"""Rows of fewer bytes are near each other: transpositions in place take rows that are far apart, each the next of a stream.

Processors foresee streams through memory, and no jumps from row to row and back. Longer rows are streams of their own, and
vector loops along rows leave them in the cache.
"""
FAR_BLOCKS = 64
"""The least blocks of rows far apart: in up to seven, one row is missing."""


def row_loop(kernel: Kernel) -> Loop | None:
    """Return the outer loop whose points are the rows of blocks; None if the kernel is not scans of such rows."""
    reduces = any(isinstance(v, Reduce) for v in kernel.values)
    if not slow_scans(kernel) or len(kernel.inner) != 1 or reduces:
        return None
    known = [(loop.extent.as_int(), loop) for loop in reversed(kernel.outer)]
    return next((loop for size, loop in known if size is None or size >= ROWS), None)


def slow_scans(kernel: Kernel) -> bool:
    """Whether scans of ``kernel`` are worth transpositions: a sum of integers takes one step in each cycle of the processor."""
    return any(scan_waits(v.op, v.state) for v in kernel.values if isinstance(v, Scan))


class ScanWriter(LoopWriter):
    """Writes the body of one function with scans and no reductions."""

    def __init__(self, kernel: Kernel, grain: int | None) -> None:
        super().__init__(kernel, grain)
        self.scans = ScanText(kernel, self.names, ROWS, narrow=True)
        self.tiled: list[int] = []
        """The values in stack arrays."""
        self.inner = kernel.inner[0]
        extent = self.inner.extent.as_int()
        self.size = TILE if extent is None else min(TILE, extent)
        self.short = all(self._is_short(v) for v in kernel.values if isinstance(v, Scan))
        """Whether rows advance one by one, in turn, and are not transposed."""
        self.step = 1
        """How far the rows of a block are apart, in rows."""

    def scans_of_rows(self) -> None:
        """Write blocks of rows, which threads share; each goes through its tiles from left to right."""
        row = row_loop(self.kernel)
        assert row is not None
        others = [loop for loop in self.kernel.outer if loop is not row]
        stores = [s for s in self.kernel.stores if self.facts.store_inner(s)]
        computed = [k for k in self.facts.needed(self.facts.roots([], stores)) if k not in self.facts.outer]
        planner = Planner(self.facts, computed, in_place=self._read_in_place(row))
        direct = [s for s in stores if self._stored_in_place(s, row)]
        phases = planner.phases([], [s for s in stores if s not in direct])
        self.step = 1 if any(phase.stores or phase.kept for phase in phases) else self._step(row)
        first = Range("row", row, str(ROWS), integer(ROWS))
        if self.step > 1:
            first = Range("row", Loop(row.var, integer(self.step)))
        self._share([*ranges(others), first])
        left = f"{c_index(row.extent)} - row"
        left = left if self.step == 1 else f"({left} + {self.step - 1}) / {self.step}"
        rest = str(ROWS) if self._whole(row) else f"min_int64_t({left}, {ROWS})"
        self.out.line(f"const int64_t width = {rest};")
        self.out.write_lines(self.scans.declare([k for phase in phases for k in phase.scans]))
        stop, self.tiled = c_index(self.inner.extent), tiled(planner, phases)
        with self.out.block(for_head("tile", "0", stop, str(self.size))):
            self.out.line(f"const int64_t count = min_int64_t({stop} - tile, {self.size});")
            self.out.write_lines(arrays(self.scans, self.tiled, ROWS, self.size))
            for phase in phases:
                if phase.stores or phase.kept:
                    self._vectors(phase, row)
                if phase.scans:
                    self._scans(planner, phase.scans, row, [s for s in direct if s.value in phase.scans])
        self._rest(row)
        self.out.close(1 + len(others))

    def _step(self, row: Loop) -> int:
        """Return how far the rows of a block are apart, in rows: the number of blocks, or 1."""
        rows, size = row.extent.as_int(), self.inner.extent.as_int()
        widest = max(ref.dtype.itemsize for ref in self.kernel.buffers)
        near = size is not None and size * widest < NEAR
        blocks = -(-(rows or 0) // ROWS)
        return blocks if near and blocks >= FAR_BLOCKS else 1

    def _read_in_place(self, row: Loop) -> frozenset[int]:
        """Return the loads that are transposed from where they lie."""
        return frozenset(
            k
            for k, v in enumerate(self.kernel.values)
            if isinstance(v, Load) and self._reads_alone(v) and (self.short or self._lies(v.index, row))
        )

    def _stored_in_place(self, store: Store, row: Loop) -> bool:
        """Whether ``store`` writes a scan, as it is, to where a transposition may leave it."""
        value, dtype = self.kernel.values[store.value], self.names.dtypes[store.buffer]
        same = isinstance(value, Scan) and dtype == value.dtype
        return same and self.scans.kind(store.value) == STORAGE[dtype] and self._lies(store.index, row)

    def _lies(self, index: Expr, row: Loop) -> bool:
        """Whether ``index`` goes along the scanned loop, and from row to row in equal steps."""
        if index.coefficient(self.inner.var) != 1 or index_operands(index):
            return False
        return index.coefficient(row.var) is not None

    def _place(self, buffer: str, index: Expr, row: Loop) -> tuple[str, str]:
        """Return as C the address of the first element of the tile, and the step from row to row."""
        step = index.coefficient(row.var)
        assert step is not None
        start = index.subs({row.var: ZERO, self.inner.var: ZERO})
        address = f"{self.names.buffers[buffer]} + {c_index(start)} + row * ({c_index(step)}) + tile"
        return f"({address})", c_index(step * self.step)

    def _vectors(self, phase: Phase, row: Loop) -> None:
        """Write the vector loop of a phase, for each row of the block."""
        values, outer = self.kernel.values, self.facts.outer
        used = {a for k in phase.computed for a in operands(values[k])}.union(phase.kept)
        used.update(k for s in phase.stores for k in (s.value, *index_operands(s.index)))
        outside = self.facts.needed(used & outer)
        name = self.inner.var.name
        with self._each("i", "width", row):
            self._values(outside)
            conversions = halves(
                self.names, self.inner.var, phase.computed, phase.stores, outer, chunk=self.size
            )
            with self._converted(conversions, "tile", "count", str(self.size)):
                self.out.line(self._simd(phase.computed, self.inner))
                with self.out.block(for_head("j", "0", "count")):
                    self.out.line(f"const int64_t {name} = tile + j;")
                    self.out.write_lines(vector_body(self.names, phase, "i", self.names.declarations))
                    self._stores(phase.stores)

    def _scans(self, planner: Planner, scans: Sequence[int], row: Loop, stores: Sequence[Store]) -> None:
        """Write scans over the tiles of all rows: together if the block has all its rows, else row by row."""
        places = {k: f"tile{k}[j][k]" for k in self.tiled}
        for k in planner.in_place:
            load = self.kernel.values[k]
            assert isinstance(load, Load)
            places[k] = self.names.element(load.buffer, load.index)
        with self.out.block("" if self._whole(row) else f"if (width == {ROWS})"):
            if self.short:
                with self.out.block(for_head("k", "0", "count")):
                    self.out.line(f"#pragma GCC unroll {ROWS} {Claim.ORDER.comment}")
                    with self._each("j", str(ROWS), row):
                        self._elements(planner, scans, places)
                        self._stores(stores)
            else:
                self._lanes(planner, scans, row, stores)
        if self._whole(row):
            return
        with self.out.block("else"), self._each("j", "width", row):
            self.out.line(Claim.ORDER.comment)
            with self.out.block(for_head("k", "0", "count")):
                self._elements(planner, scans, places)
                self._stores(stores)

    def _is_short(self, scan: Scan) -> bool:
        """Whether a scan of 64-bit elements takes less time row by row, in turn, than transpositions: one instruction a step.

        Transpositions of 32-bit elements are faster, and what vector loops computed before is in the cache.
        """
        simple = scan.op in {"sum", "prod"} or (
            scan.op in {"max", "min"} and not scan.dtype.is_floating_point
        )
        read = (self.kernel.values[arg] for arg in scan.args)
        plain = all(isinstance(v, Load) and self._reads_alone(v) for v in read)
        return scan.combine is None and simple and plain and scan.dtype.itemsize == WORD

    def _reads_alone(self, load: Load) -> bool:
        """Whether scans may read the elements of a load where they lie."""
        unchanged = load.buffer not in self.kernel.written and not operands(load)
        return unchanged and self.names.dtypes[load.buffer] == load.dtype != torch.bool

    def _whole(self, row: Loop) -> bool:
        """Whether each block certainly has all its rows."""
        size = row.extent.as_int()
        return size is not None and size % ROWS == 0

    def _lanes(self, planner: Planner, scans: Sequence[int], row: Loop, stores: Sequence[Store]) -> None:
        """Write scans whose vectors have an element of each row."""
        read = sorted({a for k in scans for a in planner.inputs(k)})
        for k in (*read, *scans):
            self.out.line(
                f"{self.scans.kind(k)} turned{k}[{self.size}][{ROWS}] __attribute__((aligned(64)));"
            )
        for k in read:
            value = self.kernel.values[k]
            source = f"tile{k}", str(self.size)
            if isinstance(value, Load) and k in planner.in_place:
                source = self._place(value.buffer, value.index, row)
            self._transpose(k, source, (f"turned{k}", str(ROWS)), f"count, {ROWS}")
        with self.out.block(for_head("k", "0", "count")):
            self.out.line(self._simd(()))
            with self._each("j", str(ROWS), row):
                self._elements(planner, scans, {k: f"turned{k}[k][j]" for k in (*read, *scans)})
        targets = [(k, (f"tile{k}", str(self.size))) for k in scans if k in self.tiled]
        targets += [(s.value, self._place(s.buffer, s.index, row)) for s in stores]
        for k, target in targets:
            self._transpose(k, (f"turned{k}", str(ROWS)), target, f"{ROWS}, count")

    def _elements(self, planner: Planner, scans: Sequence[int], places: dict[int, str]) -> None:
        """Write the step of each scan for element ``k`` of the tile of row ``j``."""
        self.out.line(f"const int64_t {self.inner.var.name} = tile + k;")
        self.out.write_lines(scan_body(self.names, self.scans, planner, scans, places))

    def _transpose(self, k: int, source: tuple[str, str], target: tuple[str, str], sizes: str) -> None:
        """Write the transposition of elements of value ``k``; the places are an address and the step between rows."""
        bits = 32 if self.scans.kind(k) == "int32_t" else 8 * self.kernel.values[k].dtype.itemsize
        word, (start, step), (end, to) = f"uint{bits}_t", source, target
        self.out.line(f"transpose_{word}((const {word}*){start}, {step}, ({word}*){end}, {to}, {sizes});")

    @contextmanager
    def _each(self, name: str, count: str, row: Loop) -> Iterator[None]:
        """Open the loop over the rows of a block, whose number in the block is ``name``."""
        with self.out.block(for_head(name, "0", count)):
            self.out.line(
                f"const int64_t {row.var.name} = row + {name}{'' if self.step == 1 else f' * {self.step}'};"
            )
            yield

    def _rest(self, row: Loop) -> None:
        """Write the stores outside the inner loop, for each row of the block."""
        stores = [s for s in self.kernel.stores if not self.facts.store_inner(s)]
        if stores:
            with self._each("i", "width", row):
                self._values(
                    self.facts.needed(k for s in stores for k in (s.value, *index_operands(s.index)))
                )
                self._stores(stores)
