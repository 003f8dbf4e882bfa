"""Write lines of C and the loops of a kernel: threads share some loops, some loops are vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

import torch

from fxstack_inductor.codegen.c.claims import (
    CALLS,
    FLAG_CLAUSE,
    ONE_BY_ONE,
    UNVECTORISED,
    Claim,
    checks_indices,
    claim,
)
from fxstack_inductor.codegen.c.halves import Halves, halves
from fxstack_inductor.codegen.c.ops import REGISTER
from fxstack_inductor.codegen.c.pointwise.row_values import array_dtype, with_arrays
from fxstack_inductor.codegen.c.ranges import Range, for_head
from fxstack_inductor.codegen.c.sharing import Sharing, share
from fxstack_inductor.codegen.c.text import Names
from fxstack_inductor.codegen.c.threads import shared_heads, work_condition
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.analysis import Analysis, analyse
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import Var, of_atom, product
from fxstack_inductor.ir.kernel import Compute, Kernel, Load, Loop, Store, index_operands, operands
from fxstack_inductor.ir.scalar_ops import EXPENSIVE
from fxstack_interchange.code_writer import CodeWriter

PIECE = 64
"""The columns in a piece are a multiple of this: whole cache lines for every element size."""
WHOLE = (16, 8)
"""Points of a vector in loops of fewer than ``SHORT_LOOP`` points, largest first."""
SHORT_LOOP = 1024
MUCH_OF_REST = 24
"""The operations of the points in no whole vector from which on vectors may overlap; a slow function counts as so many."""


@dataclass
class Writer(CodeWriter):
    """The body of a C function that several threads may execute."""

    INDENT = "  "
    OPEN = " {"
    CLOSE = "}"

    functions: list[str] = field(default_factory=list)
    """The definitions of functions that the lines call."""
    first: list[str] = field(default_factory=list)
    """The lines that run before threads share the others."""
    shared: bool = False
    """Whether several threads execute the lines."""
    conditions: set[str] = field(default_factory=set)
    """The conditions for sharing, beside enough work."""
    conditional: set[int] = field(default_factory=set)
    """The positions of the values that read under a condition."""


def flagged(lines: list[str], kernel: Kernel) -> list[str]:
    """Return ``lines`` between the declaration of the flag that index checks set and the report of the flag."""
    if not checks_indices(kernel):
        return lines
    return ["  int64_t bad = 0;", *lines, "  if (bad) *error = 1;"]


class LoopWriter:
    """Opens loops and writes values: the base of the strategies' writers.

    A kernel with less work than ``grain`` uses one thread; None: every kernel.
    """

    def __init__(self, kernel: Kernel, grain: int | None) -> None:
        self.kernel = kernel
        self.names = Names(kernel)
        self.out = Writer()
        self.grain = grain
        self.facts: Analysis = analyse(kernel)
        self.flag = FLAG_CLAUSE if checks_indices(kernel) else ""

    def _simd(self, computed: Iterable[int], loop: Loop | None = None, clauses: str = "") -> str:
        """Return the pragma of a vector loop, and its claim (``claim``, which explains the arguments)."""
        return f"#pragma omp simd{self.flag}{clauses} {claim(self.kernel, computed, loop).comment}"

    def _share(self, loops: Sequence[Range], head: str = "") -> None:
        """Open ``loops``; threads share them if work is enough. ``head`` stands in front of the last loop."""
        self._open_shared(loops, self._sharing(loops), head)

    def _sharing(self, loops: Sequence[Range]) -> Sharing | None:
        """Return how threads share ``loops``; None for too little work, or if threads would share cache lines."""
        if not loops or work_condition(self.kernel, self.grain) is None:
            return None
        return share(self.kernel, loops, self.kernel.stores)

    def _open_shared(self, loops: Sequence[Range], sharing: Sharing | None, head: str = "") -> None:
        """Open loops that threads share as ``sharing`` says; if it is None, each thread runs all loops."""
        pragma = [head] if head else []
        alone = list(loops)
        if sharing is not None:
            self._note(sharing)
            alone = list(sharing.loops[sharing.shared :])
            for declared, opening, inside in shared_heads(sharing):
                self.out.write_lines([*declared, *(pragma if not alone else [])])
                self.out.open(opening)
                self.out.line(inside)
        for depth, loop in enumerate(alone, 1):
            self.out.write_lines(pragma if depth == len(alone) else [])
            self.out.open(loop.text())

    def _note(self, sharing: Sharing) -> None:
        """Record in ``out`` that threads share its lines, and the conditions of ``sharing``."""
        self.out.shared = True
        self.out.conditions.update(sharing.conditions)

    def _open_columns(self, others: Sequence[Range], column: Loop, most: int) -> int:
        """Open loops over ``others`` and over pieces of ``column``; return the number of opened loops.

        A piece is ``width`` (at most ``most``) columns from ``tile`` on. Threads share pieces if one piece
        per row is too few.
        """
        size = column.extent.as_int()
        if size is not None and size <= PIECE:
            self._share(others)
            self.out.line(f"const int64_t tile = 0, width = {size};")
            return len(others)
        pieces = Range("tile", column, "step", of_atom(Var("step", VarKind.SIZE)) * PIECE)
        loops = [*others, pieces]
        sharing = self._sharing(loops)
        shared = () if sharing is None else sharing.loops[: sharing.shared]
        points = product(loop.loop.extent for loop in shared if loop is not pieces)
        count = c_index(points) if pieces in shared else "threads"
        columns = c_index(column.extent)
        self.out.line(f"const int64_t step = column_step({columns}, {count}, threads, {most});")
        self._open_shared(loops, sharing)
        self.out.line(f"const int64_t width = min_int64_t({columns} - tile, step);")
        return len(loops)

    def _open_loops(self, loops: Iterable[Loop]) -> None:
        """Open ``loops`` as plain C loops over all points; the caller closes them."""
        for loop in loops:
            name = loop.var.name
            self.out.open(f"for (int64_t {name} = 0; {name} < {c_index(loop.extent)}; {name}++)")

    def _open_scalar(self, loops: Sequence[Loop], reason: Claim) -> None:
        """Open ``loops``, of which the innermost is no vector loop for ``reason``."""
        self._open_loops(loops[:-1])
        self.out.write_lines([reason.comment] if loops else [])
        self._open_loops(loops[-1:])

    @contextmanager
    def _converted(
        self, conversions: Halves, first: str, count: str, most: str, *, padded: bool = False
    ) -> Iterator[None]:
        """Wrap a loop over ``j`` below ``count`` by conversions; after the loop, their arrays end.

        ``first`` is the point of the first element, ``most`` the number of elements in an array. ``padded``: numbers follow up to
        whole vectors.
        """
        if not conversions:
            yield
            return
        with self.out.block(""):
            self.out.write_lines(conversions.enter(self.names, first, count, most, padded=padded))
            yield
            self.out.write_lines(conversions.leave(self.names, first, count))

    @contextmanager
    def _runs(self, conversions: Halves, span: tuple[str, str], head: str) -> Iterator[None]:
        """Open the loop over ``conversions.var`` in ``span``, behind the pragma ``head``.

        Conversions split the loop into runs.
        """
        start, stop = span
        if not conversions:
            self.out.write_lines([head] if head else [])
            with self.out.block(for_head(conversions.var.name, start, stop)):
                yield
            return
        skew, most = conversions.skew(self.names, start), str(conversions.run)
        if skew is None:
            with (
                self.out.block(for_head("run", start, stop, most)),
                self._run(conversions, "run", stop, head),
            ):
                yield
            return
        with self.out.block(for_head("run", f"{start} - {skew}", stop, most)):
            self.out.line(f"const int64_t point = max_int64_t(run, {start});")
            self.out.line(f"const int64_t end = min_int64_t(run + {most}, {stop});")
            with self._run(conversions, "point", "end", head):
                yield

    @contextmanager
    def _run(self, conversions: Halves, first: str, stop: str, head: str) -> Iterator[None]:
        """Open the loop from ``first`` to ``stop``, but over at most ``conversions.run`` points."""
        most = conversions.run
        self.out.line(f"const int64_t count = {stop} - {first} < {most} ? {stop} - {first} : {most};")
        with self._converted(conversions, first, "count", str(most)):
            self.out.write_lines([head] if head else [])
            with self.out.block(for_head("j", "0", "count")):
                self.out.line(f"const int64_t {conversions.var.name} = {first} + j;")
                yield

    def _vector(self, loop: Loop, span: tuple[str, str]) -> None:
        """Write values and stores along ``loop``, a vector loop.

        Values that do not change along the loop come first.
        """
        outside, inside = self._split(loop)
        conversions = halves(self.names, loop.var, inside, self.kernel.stores, outside, skew=True)
        copies = not conversions.streams.stores and self._copies_from_places(loop, inside)
        conversions = (
            replace(conversions, loads={}, stores=[], far=[], scattered=[]) if copies else conversions
        )
        padded = self._padded(loop, conversions, inside) if span[0] == "0" else None
        whole = None if conversions or span[0] != "0" else self._whole_vectors(loop, inside)
        if padded is not None:
            around = self._beyond(loop, conversions, padded, self._simd(inside))
        elif whole is not None:
            around = self._overlapping(loop, whole, self._simd(inside))
        elif copies:
            around = self._runs(conversions, span, ONE_BY_ONE)
        else:
            around = self._runs(conversions, span, self._simd(inside, loop))
        with around:
            self._values(inside)
            self._stores(self.kernel.stores)
            self.out.write_lines([UNVECTORISED] if copies else [])

    def _copies_from_places(self, loop: Loop, inside: Sequence[int]) -> bool:
        """Whether a loop only copies elements, of which some are at places that arrays have."""
        values, varies = [self.kernel.values[k] for k in inside], self.facts.varying(loop)
        plain = all(isinstance(v, Load) and v.mask is None for v in values)
        return plain and any(not varies.isdisjoint(operands(v)) for v in values)

    def _split(self, loop: Loop) -> tuple[frozenset[int], list[int]]:
        """Write the values that do not change along ``loop``; return their positions, and those of the others."""
        varies, needed = self.facts.varying(loop), self._needed()
        outside = [k for k in needed if k not in varies]
        self._values(outside)
        return frozenset(outside), [k for k in needed if k in varies]

    def _whole_vectors(self, loop: Loop, inside: Sequence[int]) -> int | None:
        """Return the points of a vector, if whole vectors, of which the last two overlap, are worth more than a rest.

        A kernel that reads what it writes keeps the rest: it would read the results of the first of the two.
        """
        size = loop.extent.as_int() or 0
        points = next((n for n in WHOLE if n <= size), 0)
        computed = [v for k in inside if isinstance(v := self.kernel.values[k], Compute)]
        work = sum(MUCH_OF_REST if v.op in EXPENSIVE - CALLS else 1 for v in computed)
        few = size < SHORT_LOOP and size % max(points, 1) > 0
        return points if self.kernel.repeatable and few and work * (size % points) >= MUCH_OF_REST else None

    def _padded(self, loop: Loop, conversions: Halves, inside: Iterable[int]) -> int | None:
        """Return the points of whole vectors of a short loop that reads and writes arrays on the stack alone."""
        size = loop.extent.as_int() or 0
        points = -(-size // WHOLE[0]) * WHOLE[0]
        known = {*conversions.loads, *conversions.far, *conversions.only_places(self.names)}
        others = [self.kernel.values[k] for k in inside if k not in known]
        computed = all(isinstance(v, Compute) and v.dtype in (torch.float32, torch.bool) for v in others)
        alone = computed and len(conversions.held) == len(self.kernel.stores)
        few = size < SHORT_LOOP and size < points and size != WHOLE[1]
        return points if conversions and alone and few else None

    @contextmanager
    def _beyond(self, loop: Loop, conversions: Halves, points: int, head: str) -> Iterator[None]:
        """Open a loop over ``points`` points, of which nothing reads those beyond ``loop``."""
        size = c_index(loop.extent)
        with self._converted(conversions, "0", size, str(points), padded=True):
            self.out.line(head)
            with self.out.block(for_head("j", "0", str(points))):
                self.out.line(f"const int64_t {loop.var.name} = j;")
                yield

    @contextmanager
    def _overlapping(self, loop: Loop, points: int, head: str) -> Iterator[None]:
        """Open loops over ``points`` neighbours at a time; the last of them end where ``loop`` ends."""
        size = c_index(loop.extent)
        with self.out.block(for_head("from", "0", size, str(points))):
            self.out.line(f"const int64_t at = min_int64_t(from, {size} - {points});")
            self.out.line(head)
            with self.out.block(for_head("j", "0", str(points))):
                self.out.line(f"const int64_t {loop.var.name} = at + j;")
                yield

    def _once(self, found: Sequence[int]) -> Self:
        """Write the values ``found``, equal in all rows, to arrays; return a writer of the kernel that reads these."""
        writer = self._for(with_arrays(self.kernel, found))
        last, arrays = (
            (self.kernel.inner or self.kernel.outer)[-1],
            [writer.names.buffers[f"row{k}"] for k in found],
        )
        size, needed = c_index(last.extent), self.facts.needed(found)
        dtypes = [REGISTER[array_dtype(self.kernel.values[k])] for k in found]
        self.out.write_lines(f"{dtype} {array}[{size}];" for dtype, array in zip(dtypes, arrays, strict=True))
        self.out.line(self._simd(needed, last))
        with self.out.block(for_head(last.var.name, "0", size)):
            self._values(needed)
            self.out.write_lines(
                f"{array}[{last.var.name}] = v{k};" for k, array in zip(found, arrays, strict=True)
            )
        return writer

    def _for(self, kernel: Kernel) -> Self:
        """Return a writer for ``kernel``, a part of this function; its lines go to this writer's ``out``."""
        if kernel is self.kernel:
            return self
        writer = type(self)(kernel, self.grain)
        writer.out = self.out
        writer.names.apart = self.names.apart
        writer.names.conditional = self.names.conditional
        writer.names.staged = dict(self.names.staged)
        writer.names.narrow |= self.names.narrow
        if self.names.targets:
            stores = zip(self.kernel.stores, kernel.stores, strict=True)
            targets = {here: self.names.targets[s] for s, here in stores if s in self.names.targets}
            writer.names.targets = targets
        return writer

    def _needed(self) -> list[int]:
        """Return the positions of the values that the stores and their addresses need."""
        roots = {k for s in self.kernel.stores for k in (s.value, *index_operands(s.index))}
        return self.facts.needed(roots)

    def _values(self, positions: Iterable[int]) -> None:
        """Write the declarations of the values at ``positions``; constants need none."""
        for k in positions:
            self.out.write_lines(self.names.declarations(k))

    def _stores(self, stores: Iterable[Store]) -> None:
        """Write the statements of ``stores``."""
        for store in stores:
            self.out.line(self.names.store(store))
