"""Write reductions across memory: vectors of partial results for many columns at once, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from fxstack_inductor.codegen.c import ops as c_ops
from fxstack_inductor.codegen.c.claims import CALLS
from fxstack_inductor.codegen.c.function import FunctionWriter
from fxstack_inductor.codegen.c.halves import FLOATS, HALF_DTYPES, VECTOR, Halves, halves
from fxstack_inductor.codegen.c.loops import PIECE
from fxstack_inductor.codegen.c.ops import REGISTER
from fxstack_inductor.codegen.c.ranges import Range, for_head, ranges
from fxstack_inductor.codegen.c.reductions.combine import located_step, scan_start
from fxstack_inductor.codegen.c.reductions.copies import Copies, copies, worthwhile
from fxstack_inductor.codegen.c.reductions.crossing import BLOCK, Crossing, crossing, row_number
from fxstack_inductor.codegen.c.reductions.lanes import beside
from fxstack_inductor.codegen.c.reductions.saved import SLOW, first_passes, saved_values, stored_values
from fxstack_inductor.codegen.c.reductions.scan import ScanText
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import integer, product
from fxstack_inductor.ir.kernel import (
    Check,
    Compute,
    Constant,
    Kernel,
    Load,
    Loop,
    Reduce,
    Scan,
    Store,
    Value,
    operands,
)
from fxstack_inductor.ir.scalar_ops import EXPENSIVE, SLOW_SCANS

MAX_TILE_COLUMNS = 1024
"""The most columns whose partial results are on the stack: enough for pages and prefetching."""
KEPT = 3 << 17
"""The most bytes of values that a tile keeps for a later pass: three quarters of a second-level cache."""
SIDES = (64, 32, 16)
"""Numbers of rows that are copied at once, largest first."""
COPIED = 1 << 15
"""The most bytes of these copies: a first-level cache."""
SHORT = 1 << 15
"""The most bytes of all rows of a few columns: a first-level cache."""
BLOCK_ROWS = 64
"""The number of rows summed in float before the partial sums are added to doubles."""
NEAR_ROWS = (8, 7, 6, 5, 4)
"""Numbers of rows that are written out at a time, best first. GCC keeps no array in registers in a loop with masked reads."""
MANY, FEWEST = 256, 2
"""So many columns have few in the rest; and the fewest in a rest that takes longer than half a vector more."""
LANES, FLOAT = 8, 4
"""The columns of the vector that a compiler makes of a rest, and the bytes of an element: of larger ones, half as many."""
POSITIONS = frozenset({"argmax", "argmin"})
"""Reductions to positions, which have a vector of extremes beside that of positions."""


class ColumnWriter(FunctionWriter):
    """Writes the body of one function that reduces across memory."""

    ALL_COLUMNS = False
    """Whether a tile has all columns, also where they are few."""
    BEYOND = 0
    """How many elements behind the last row of kept values a vector may write."""

    def __init__(self, kernel: Kernel, grain: int) -> None:
        super().__init__(kernel, grain)
        self.most = MAX_TILE_COLUMNS
        """The most columns of a tile."""
        self.widest = MAX_TILE_COLUMNS
        """The columns in a row of kept values."""
        self.column_scans = ScanText(kernel, self.names, MAX_TILE_COLUMNS)
        self.copies: Copies | None = None
        """The accesses along the inner loops."""
        self.kept: frozenset[int] = frozenset()
        """The values of all rows of a tile that stack arrays keep for a later pass."""
        self.stored: dict[int, Store] = {}
        """The values that a later pass reads from where an earlier pass stores them."""
        self.ready: frozenset[int] = frozenset()
        """The values among them that an earlier pass has computed."""
        self.vectors: dict[int, str] = {}
        """The stack arrays over the columns of a tile with finished values outside the inner loops, by position."""
        self.lanes = "width"
        """How many elements of a row of arrays on the stack hold numbers: the columns, or whole vectors of them."""

    def columns(self) -> None:
        """Keep tiles of the last outer loop as vectors of partial results; threads share the tiles."""
        *others, column = self.kernel.outer
        rows = product(loop.extent for loop in self.kernel.inner).as_int()
        self.copies = worthwhile(copies(self.kernel, column))
        self.stored = {} if self.copies else stored_values(self.facts)
        self.names.reread.update(self.stored.values())
        most = MAX_TILE_COLUMNS if rows is None else self._keep(rows, column)
        across = crossing(self.kernel)
        if self.copies or across:
            most = self.most = PIECE
        widest = min(most, column.extent.as_int() or most)
        if not self.copies and across is None and not self.ALL_COLUMNS and self._short(column, rows):
            opened, widest = self._open_short(others, column), VECTOR
        elif across is None:
            opened = self._open_columns(ranges(others), column, most)
            read = self.copies is not None and bool(self.copies.loads)
            if not read and not self.ALL_COLUMNS and self._goes_beyond(column):
                self.lanes = self.column_scans.stop = "lanes"
                widest = -(-widest // VECTOR) * VECTOR
                self.most = min(self.most, widest)
                self.out.line(f"const int64_t lanes = (width + {VECTOR - 1}) / {VECTOR} * {VECTOR};")
        else:
            opened = 1 + self._open_crossing(across, others, most)
        self._tile(column, rows, widest)
        self.out.close(opened)

    def _goes_beyond(self, column: Loop) -> bool:
        """Whether vectors go on beyond the columns: a row is one vector, or takes long for the columns that are in no vector."""
        size, kernel = column.extent.as_int(), self.kernel
        if size is None or not LANES < size < MANY or kernel.scatters:
            return False
        loads = (v for k, v in enumerate(kernel.values) if self.facts.inner[k] and isinstance(v, Load))
        wide = any(self.names.dtypes[v.buffer].itemsize > FLOAT for v in loads)
        if LANES + (LANES // 2 if wide else 1) < size < VECTOR and self._near_rows():
            return True
        rest = size % (LANES // 2 if wide else LANES)
        if rest < (1 if wide else FEWEST) or (wide and -size % VECTOR > size // 4):
            return False
        inner = [v for k, v in enumerate(kernel.values) if self.facts.inner[k]]
        return any(self._waits_alone(v) for v in inner if size > VECTOR or not isinstance(v, Load))

    def _near_rows(self) -> int | None:
        """Return how many rows are written out at a time, so that arrays of one vector are registers; None: they are memory."""
        rows, last = (
            product(loop.extent for loop in self.kernel.inner).as_int(),
            self.kernel.inner[-1].extent.as_int(),
        )
        if rows is None or last is None or rows > BLOCK_ROWS:
            return None
        return last if last <= VECTOR else next((n for n in NEAR_ROWS if last % n == 0), None)

    def _waits_alone(self, value: Value) -> bool:
        """Whether a value of a single column takes about as long as those of a vector: a slow function, a half to convert.

        A function that has no vector version takes as long for each number beyond the columns.
        """
        if isinstance(value, Load):
            return self.names.dtypes[value.buffer] in c_ops.HALVES
        return isinstance(value, (Compute, Scan)) and value.op in (EXPENSIVE | SLOW | SLOW_SCANS) - CALLS

    def _short(self, column: Loop, rows: int | None) -> bool:
        """Whether the columns are few, and their rows stay in the first-level cache, which each vector of columns reads.

        A kernel that reads what it writes has no vectors that overlap: it would read the results of the first of the two.
        """
        size, kernel = column.extent.as_int() or 0, self.kernel
        each = sum(ref.dtype.itemsize for ref in kernel.buffers)
        fits = rows is not None and rows * size * each <= SHORT
        if not fits or not beside(kernel, range(len(kernel.values)), column.var):
            return False
        return VECTOR < size <= PIECE and (kernel.repeatable or size % VECTOR == 0)

    def _open_short(self, others: Sequence[Loop], column: Loop) -> int:
        """Open the loop over vectors of few columns, of which the last two may overlap; return the number of opened loops.

        Partial results of one vector stay in registers from row to row.
        """
        size, self.most = column.extent.as_int(), VECTOR
        self._share(ranges(others))
        self.out.open(for_head("from", "0", str(size), str(VECTOR)))
        self.out.line(f"const int64_t tile = min_int64_t(from, {size} - {VECTOR}), width = {VECTOR};")
        return 1 + len(others)

    def _open_crossing(self, across: Crossing, others: Sequence[Loop], most: int) -> int:
        """Open the loops over blocks and columns, copy what lies across them, and open the loop over a block."""
        block = Range("cross", across.along, str(BLOCK), integer(BLOCK))
        around = [
            block if loop is across.along else whole
            for loop, whole in zip(others, ranges(others), strict=True)
        ]
        opened = self._open_columns(around, across.column, most)
        extent = c_index(across.along.extent)
        self.out.line(f"const int64_t crossed = min_int64_t({extent} - cross, {BLOCK});")
        self.out.write_lines(across.enter(self.names))
        self.out.open(for_head("i", "0", "crossed"))
        self.out.line(f"const int64_t {across.along.var.name} = cross + i;")
        return opened

    def _tile(self, column: Loop, rows: int | None, widest: int) -> None:
        """Write the passes over a tile of ``width`` columns, at most ``widest``."""
        self.widest = widest
        kept = ((k, REGISTER[self.kernel.values[k].dtype]) for k in sorted(self.kept))
        self.out.write_lines(f"{kind} kept{k}[{rows} * {widest} + {self.BEYOND}];" for k, kind in kept)
        first = first_passes(self.facts)
        for stage in range(self.facts.last_stage + 1):
            self.ready = frozenset(k for k in (*self.kept, *self.stored) if first[k] < stage)
            self.names.finished.update(self.ready)
            self._column_pass(stage, column)

    def _keep(self, rows: int, column: Loop) -> int:
        """Choose the values ``kept``; return the most columns of a tile, so that these values fit on the stack."""
        values = self.kernel.values
        self.kept = found = self._kept(rows * PIECE, column, KEPT)
        each = rows * sum(values[k].dtype.itemsize for k in found)
        return min(MAX_TILE_COLUMNS, KEPT // each // PIECE * PIECE) if each else MAX_TILE_COLUMNS

    def _kept(self, size: int, column: Loop, bytes_left: int) -> frozenset[int]:
        """Return the values of each column that are worth stack arrays of ``size`` elements."""
        varies = self._by_column(column)
        found = saved_values(self.facts, size, bytes_left, self.stored)
        return frozenset(k for k in found if k in varies and isinstance(self.kernel.values[k], Compute))

    def _column_pass(self, stage: int, column: Loop) -> None:
        """Write one pass for a tile of columns, then the outer-level stores that the pass completes."""
        reduces = self.facts.reduces(stage)
        stores = self.facts.stores(stage, inner=True)
        if reduces or stores:
            self._keep_vectors(column, reduces, stores)
            self._column_loops(column, reduces, stores)
        done = [
            s for at in ((0, 1) if stage == 0 else (stage + 1,)) for s in self.facts.stores(at, inner=False)
        ]
        if done:
            with self._over_columns(column, [s.value for s in done], done):
                self._stores(done)

    def _keep_vectors(self, column: Loop, reduces: list[int], stores: list[Store]) -> None:
        """Compute values outside the inner loops once per column, before a pass that would repeat them in every row."""
        roots, outer, values = self.facts.roots(reduces, stores), self.facts.outer, self.kernel.values
        computed = self._per_column(roots, frozenset())
        used = {arg for k in computed if k not in outer for arg in operands(values[k])}.union(roots)
        varies = self._by_column(column).difference(self.vectors)
        copied = {store.value for store in self.kernel.copied}  # they read the element again
        kept = sorted(k for k in used & outer & varies - copied if self._is_slow(values[k]))
        if not kept:
            return
        for k in kept:
            self.out.line(f"{REGISTER[values[k].dtype]} vector{k}[{self.most}];")
        with self._over_columns(column, kept, []):
            self.out.write_lines(f"vector{k}[j] = v{k};" for k in kept)
        if self.lanes != "width":
            self.out.write_lines(self._beyond_columns(f"vector{k}") for k in kept)
        self.vectors.update({k: f"vector{k}" for k in kept})
        self.names.finished.update(kept)

    def _is_slow(self, value: Value) -> bool:
        """Whether a value takes longer than to read it from a stack array: places are computed, a loaded half is converted."""
        if isinstance(value, Load):
            return bool(operands(value)) or self.names.dtypes[value.buffer] in c_ops.HALVES
        return isinstance(value, (Compute, Check))

    def _column_loops(self, column: Loop, reduces: list[int], stores: list[Store]) -> None:
        """Write the loops over the rows of a tile; many rows are summed in blocks."""
        rows = product(loop.extent for loop in self.kernel.inner).as_int()
        few = rows is not None and rows <= BLOCK_ROWS
        for k in reduces:
            value = self.kernel.reduction(k)
            if value.op in POSITIONS:
                self._declare_positions(k, value)
                continue
            how = self._accumulator(k)
            kind = how.register if few else how.wide
            self.out.line(f"{kind} sum{k}[{self.most}];")
            self.out.line(f"for (int64_t j = 0; j < {self.lanes}; j++) sum{k}[j] = {how.identity};")
        self.out.write_lines(self.column_scans.declare(self._scans(0, reduces, stores)))
        if few:
            self._few_rows(column, reduces, stores)
        else:
            self._column_blocks(column, reduces, stores, BLOCK_ROWS)
        if self.lanes != "width":
            self.out.write_lines(self._beyond_columns(f"sum{k}") for k in reduces)

    @staticmethod
    def _beyond_columns(array: str) -> str:
        """Return C that continues an array over columns with its first element: functions may be slow for other numbers."""
        return f"for (int64_t j = width; j < lanes; j++) {array}[j] = {array}[0];"

    def _declare_positions(self, k: int, value: Reduce) -> None:
        """Declare the vector of extremes so far and that of their positions, which blocks do not divide."""
        dtype = self.kernel.values[value.args[0]].dtype
        worst = scan_start(value.op, dtype)
        for name, kind, first in ((f"best{k}", dtype, worst), (f"sum{k}", value.dtype, "0")):
            self.out.line(f"{REGISTER[kind]} {name}[{self.most}];")
            self.out.line(f"for (int64_t j = 0; j < {self.lanes}; j++) {name}[j] = {first};")

    def _few_rows(self, column: Loop, reduces: list[int], stores: list[Store]) -> None:
        """Write the loops over rows that need no blocks."""
        *first, last = self.kernel.inner
        self._open_loops(first)
        self._rows(("0", c_index(last.extent)), column, reduces, stores, "sum")
        self.out.close(len(first))

    def _column_blocks(self, column: Loop, reduces: list[int], stores: list[Store], most: int) -> None:
        """Sum rows in blocks of at most ``most`` of the first inner loop; add the block sums to sums of twice the precision."""
        first, *rest = self.kernel.inner
        size = c_index(first.extent)
        parts = [k for k in reduces if self.kernel.reduction(k).op not in POSITIONS]
        for k in parts:
            self.out.line(f"{self._accumulator(k).register} part{k}[{self.most}];")
        self.out.open(f"for (int64_t block = 0; block < {size}; block += {most})")
        self.out.line(f"const int64_t stop = {size} - block < {most} ? {size} : block + {most};")
        self._begin_block(parts)
        if rest:
            self.out.open(for_head(first.var.name, "block", "stop"))
            self._open_loops(rest[:-1])
            self._rows(("0", c_index(rest[-1].extent)), column, reduces, stores, "part")
            self.out.close(len(rest))
        else:
            self._rows(("block", "stop"), column, reduces, stores, "part")
        self._end_block(parts)
        self.out.close()

    def _begin_block(self, reduces: list[int]) -> None:
        """Set the partial results of a block to the neutral elements."""
        for k in reduces:
            self.out.line(
                f"for (int64_t j = 0; j < {self.lanes}; j++) part{k}[j] = {self._accumulator(k).identity};"
            )

    def _end_block(self, reduces: list[int]) -> None:
        """Take the partial results of a block into the results."""
        for k in reduces:
            step = self._accumulator(k).step.format(acc=f"sum{k}[j]", x=f"part{k}[j]")
            self.out.line(f"for (int64_t j = 0; j < width; j++) {step}")

    def _rows(
        self, span: tuple[str, str], column: Loop, reduces: list[int], stores: list[Store], target: str
    ) -> None:
        """Write the last inner loop over ``span``; accesses along it go through copies of blocks of rows."""
        name = self.kernel.inner[-1].var.name
        needed = self.facts.needed(self.facts.roots(reduces, stores), stop=self.ready.union(self.vectors))
        moved = self.copies.part(needed, stores) if self.copies else None
        near = self._near_rows() if self.lanes != "width" and self.most == VECTOR else None
        if not moved and near is not None and near < (self.kernel.inner[-1].extent.as_int() or 0):
            head = for_head("near", *span, str(near))
            with self.out.block(head), self.out.block(for_head(name, "near", f"near + {near}")):
                self._column_rows(column, reduces, stores, target)
            return
        if not moved:
            with self.out.block(for_head(name, *span)):
                self._column_rows(column, reduces, stores, target)
            return
        side = next((n for n in SIDES if n * PIECE * moved.width(self.names.dtypes) <= COPIED), SIDES[-1])
        with self.out.block(for_head("from", *span, str(side))):
            self.out.line(f"const int64_t count = min_int64_t({span[1]} - from, {side});")
            self.out.write_lines(moved.enter(self.names, "from", "count", (side, PIECE)))
            with self.out.block(for_head(name, "from", "from + count")):
                self._column_rows(column, reduces, stores, target)
            self.out.write_lines(moved.leave(self.names, "from", "count", PIECE))

    def _column_rows(self, column: Loop, reduces: list[int], stores: list[Store], target: str) -> None:
        """Write one row of the tile: take each column's element into the vectors ``target<k>``, and store."""
        roots = self.facts.roots(reduces, stores)
        shared = self._shared_by_columns(column, roots)
        self._values(shared)
        loops: list[tuple[list[int], list[Store]]] = [(reduces, stores)]
        if self._apart_from_stores(column, reduces, stores):
            loops = [([], stores), (reduces, [])]
        for taken, stored in loops:
            with self._over_columns(column, self.facts.roots(taken, stored), stored, frozenset(shared)):
                for k in taken:
                    self.out.line(self._column_step(k, f"{target}{k}[j]"))
                self._stores(stored)

    def _apart_from_stores(self, column: Loop, reduces: list[int], stores: list[Store]) -> bool:
        """Whether slow functions that are stored alone have a loop of their own, before that of the reductions.

        They leave no registers to the partial results, least of all to those of twice the width. It takes longer to read
        pieces of rows twice. A scan may take in each element once only.
        """
        values = self.kernel.values
        roots = self.facts.roots(reduces, []), self.facts.roots([], stores)
        below = [set(self.facts.needed(each)) for each in roots]
        slow = [
            any(isinstance(v := values[k], Compute) and v.op in EXPENSIVE for k in found)
            for found in (below[1] - below[0], below[0] & below[1])
        ]
        wide = [any(values[k].dtype == torch.float64 for k in found) for found in below]
        rows = (column.extent.as_int() or self.most + 1) <= self.most
        found = bool(reduces) and slow == [True, False] and (rows or wide == [True, False])
        return found and self.kernel.repeatable and not self.kernel.ordered

    def _column_step(self, k: int, target: str) -> str:
        """Return the C statement that takes an element of a column into ``target``, or into its extreme and position."""
        value = self.kernel.reduction(k)
        if value.op not in POSITIONS:
            return self._step(k, target)
        x, at = map(self.names.operand, value.args)
        unordered = self.kernel.values[value.args[0]].dtype.is_floating_point
        return located_step(value.op, k, x, at, unordered=unordered)

    @contextmanager
    def _over_columns(
        self,
        column: Loop,
        roots: list[int],
        stores: list[Store],
        computed_before: frozenset[int] = frozenset(),
    ) -> Iterator[None]:
        """Open the loop over a tile's columns and write the values that ``roots`` need.

        The values ``computed_before`` are known before the loop.
        """
        computed = self._per_column(roots, computed_before)
        fresh = [k for k in computed if k not in self.ready]
        self.names.rows = self.vectors
        conversions, stop = self._rest_in_arrays(column, computed, stores, computed_before), "lanes"
        if conversions is None:
            stop, dtypes = "width", HALF_DTYPES if self.most == VECTOR else frozenset[torch.dtype]()
            conversions = halves(
                self.names, column.var, fresh, stores, computed_before, dtypes=dtypes, chunk=self.most
            )
        beyond = stop == "lanes"
        with self._converted(conversions, "tile", "width", str(self.most), padded=beyond):
            self.out.line(self._simd(computed, None if beyond else column))
            with self.out.block(f"for (int64_t j = 0; j < {stop}; j++)"):
                self.out.line(f"const int64_t {column.var.name} = tile + j;")
                self._column_values(computed)
                yield

    def _rest_in_arrays(
        self, column: Loop, computed: list[int], stores: list[Store], before: frozenset[int]
    ) -> Halves | None:
        """Return the conversions of a loop whose vectors go on beyond the columns; None for other loops.

        All that changes from column to column is in arrays on the stack.
        """
        values, arrays = self.kernel.values, self.ready.union(self.vectors)
        fresh = [k for k in computed if k not in arrays]
        one = (column.extent.as_int() or VECTOR) < VECTOR and self._near_rows()
        if self.lanes == "width" or not (one or any(self._waits_alone(values[k]) for k in fresh)):
            return None
        found = halves(self.names, column.var, fresh, stores, before, dtypes=FLOATS, chunk=self.most)
        others = (values[k] for k in fresh if k not in found.loads)
        plain = all(isinstance(v, (Compute, Constant, Reduce, Scan)) for v in others)
        held = len(found.held) == len(stores) and self.ready.isdisjoint(self.stored)
        return found if plain and held and not found.far and not found.scattered else None

    def _shared_by_columns(self, column: Loop, roots: list[int]) -> list[int]:
        """Return values common to all columns, to be computed before the column loop."""
        varies = self._by_column(column)
        needed = self.facts.needed(roots, stop=self.ready.union(self.vectors))
        return [k for k in needed if k not in varies]

    def _by_column(self, column: Loop) -> set[int]:
        """Return the positions of the values that differ from column to column, results and scans among them."""
        varies = self.facts.varying(column)
        for k, value in enumerate(self.kernel.values):
            if isinstance(value, (Reduce, Scan)) or not varies.isdisjoint(operands(value)):
                varies.add(k)
        return varies

    def _per_column(self, roots: list[int], computed_before: frozenset[int]) -> list[int]:
        """Return the values that ``roots`` need in the loop over columns, without those ``computed_before``."""
        reduces = frozenset(k for k, v in enumerate(self.kernel.values) if isinstance(v, Reduce))
        stop = reduces.union(computed_before, self.vectors, self.ready)
        return [k for k in self.facts.needed(roots, stop=stop) if k not in computed_before]

    def _column_values(self, computed: list[int]) -> None:
        """Write the values of one column; finished reductions are read from their vectors."""
        for k in computed:
            value = self.kernel.values[k]
            if k in self.vectors:
                self.out.line(f"const {REGISTER[value.dtype]} v{k} = {self.vectors[k]}[j];")
            elif isinstance(value, Reduce):
                self.out.line(f"const {REGISTER[value.dtype]} v{k} = sum{k}[j];")
            elif k in self.ready:
                self.out.line(f"const {REGISTER[value.dtype]} v{k} = {self._place(k)};")
            elif isinstance(value, Scan):
                self.out.write_lines(self.column_scans.step(k))
            elif not isinstance(value, Constant):
                self.out.line(self.names.declare(k))
                self.out.write_lines([f"{self._place(k)} = v{k};"] if k in self.kept else [])

    def _place(self, k: int) -> str:
        """Return the element of a kept value at the row of the inner loops and column ``j`` of the tile."""
        if (store := self.stored.get(k)) is not None:
            element = self.names.element(store.buffer, store.index)
            return c_ops.load(element, self.names.dtypes[store.buffer])
        return f"kept{k}[({row_number(self.kernel.inner)}) * {self.widest} + j]"
