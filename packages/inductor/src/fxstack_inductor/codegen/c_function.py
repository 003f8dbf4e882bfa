"""One kernel as a C function. Which loop structure is used is decided in ``strategy``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_inductor.codegen.c_loops import LoopWriter
from fxstack_inductor.codegen.c_ops import REGISTER
from fxstack_inductor.codegen.c_points import PointsWriter
from fxstack_inductor.codegen.c_reduce import Accumulator, accumulator, arg_step, key_step
from fxstack_inductor.codegen.c_scan import ScanText
from fxstack_inductor.codegen.c_scatter import ScatterWriter
from fxstack_inductor.codegen.c_text import index_text, parameters
from fxstack_inductor.codegen.c_tiles import TileWriter, crossing
from fxstack_inductor.ir.expr import product
from fxstack_inductor.ir.kernel import Compute, Constant, Kernel, Load, Loop, Reduce, Scan
from fxstack_inductor.ir.scalar_ops import EXPENSIVE

if TYPE_CHECKING:
    from fxstack_inductor.ir.kernel import Store

COLUMNS = 1024
"""Most columns that a column reduction keeps partial results of, on the stack: long enough for pages and prefetching."""
BLOCK = 2048
"""Elements summed in float before the partial sum is added to a double."""
ROWS = 256
"""The same for column reductions: rows."""
ROW_CACHE = 8192
"""Longest row of expensive intermediate values kept on the stack for a later pass."""
FEW_POINTS = 8
"""With fewer outer points than this, the inner loop is what threads share."""


def strategy(kernel: Kernel) -> str:
    """How the loops are arranged.

    ``points``: no inner loops; ``tiles``: none, and some memory is walked across the last loop;
    ``rows``: the inner loops run along memory; ``columns``: across it; ``whole``:
    there are few outer points, and threads share the inner loops; ``scatter``: stores may meet, and the inner
    loops keep their order.
    """
    if kernel.scatters:
        return "scatter"
    if not kernel.inner:
        return "tiles" if crossing(kernel) is not None else "points"
    reduces = [v for v in kernel.values if isinstance(v, Reduce)]
    if kernel.ordered:
        return "columns" if _across(kernel) else "rows"
    if not reduces:
        return "rows"
    points = product(loop.extent for loop in kernel.outer).as_int()
    scalar = any(r.op.startswith("arg") for r in reduces)
    if points is not None and points < FEW_POINTS and not scalar:
        return "whole"
    return "columns" if not scalar and _across(kernel) else "rows"


def _across(kernel: Kernel) -> bool:
    """Whether most of what the inner loops read lies across memory; what all columns share has no say."""
    if not kernel.outer:
        return False
    inner, outer = kernel.inner[-1].var, kernel.outer[-1].var
    rows = {loop.var for loop in kernel.inner}
    along = across = 0
    for value in kernel.values:
        if isinstance(value, Load) and not value.index.variables.isdisjoint(rows):
            depends = outer in value.index.variables
            along += depends and value.index.coefficient(inner) == 1
            across += value.index.coefficient(outer) == 1
    return across > along


def function_text(kernel: Kernel, name: str, grain: int) -> str:
    """The C definition of ``kernel``, called ``name``."""
    chosen = strategy(kernel)
    writer = WRITERS.get(chosen, FunctionWriter)(kernel, grain)
    getattr(writer, chosen)()
    head = f"void {name}({', '.join(parameters(kernel))})"
    return "\n".join([f"{head} {{", *writer.out.lines, "}"])


WRITERS: dict[str, type[LoopWriter]] = {
    "points": PointsWriter,
    "tiles": TileWriter,
    "scatter": ScatterWriter,
}
"""Writers of strategies that are not among ``FunctionWriter``'s."""


class FunctionWriter(LoopWriter):
    """Writes the body of one function; each strategy is a method."""

    def __init__(self, kernel: Kernel, grain: int) -> None:
        super().__init__(kernel, grain)
        self.saved: dict[int, str] = {}
        self.scans = ScanText(kernel, self.names)
        self.column_scans = ScanText(kernel, self.names, COLUMNS)

    # --- strategies -----------------------------------------------------------------------------------

    def rows(self) -> None:
        """For each outer point, passes over the inner loops."""
        loops = self.kernel.outer
        count = self._parallel(loops, simd=False, every=True)
        self._open_loops(loops[count:])
        self._passes()
        self.out.close(len(loops))

    def whole(self) -> None:
        """Few outer points: threads share the first inner loop, and their partial results are added in order."""
        self._open_loops(self.kernel.outer)
        emitted: set[int] = set()
        for stage in range(self.facts.last_stage + 1):
            self._outer_values(stage, emitted)
            self._shared_pass(stage)
            self._outer_stores(stage, emitted)
        self.out.close(len(self.kernel.outer))

    def columns(self) -> None:
        """Tiles of the last outer loop are kept as vectors of partial results; threads over the tiles."""
        *others, column = self.kernel.outer
        size = index_text(column.extent)
        points = index_text(product(loop.extent for loop in others))
        self.out.line(f"const int64_t step = column_step({size}, {points}, threads, {COLUMNS});")
        self._work_clause(len(others) + 1)
        self._open_loops(others)
        self.out.open(f"for (int64_t tile = 0; tile < {size}; tile += step)")
        self.out.line(f"const int64_t width = {size} - tile < step ? {size} - tile : step;")
        for stage in range(self.facts.last_stage + 1):
            self._column_pass(stage, column)
        self.out.close(len(others) + 1)

    # --- passes over the inner loops ------------------------------------------------------------------

    def _passes(self) -> None:
        emitted: set[int] = set()
        self._plan_row_cache()
        for stage in range(self.facts.last_stage + 1):
            self._outer_values(stage, emitted)
            reduces = self.facts.reduces(stage)
            stores = self.facts.stores(stage, inner=True)
            if reduces or stores:
                self._row_pass(stage, reduces, stores)
            self._outer_stores(stage, emitted)

    def _outer_values(self, stage: int, emitted: set[int]) -> None:
        """Outer-level values that became available, as scalars."""
        for k, value in enumerate(self.kernel.values):
            ready = self.facts.stage[k] == stage and not self.facts.inner[k]
            if ready and k not in emitted and not isinstance(value, (Reduce, Constant)):
                self.out.line(self.names.declare(k))
                emitted.add(k)

    def _outer_stores(self, stage: int, emitted: set[int]) -> None:
        """Stores of what pass ``stage`` or the values before it have completed."""
        self._outer_values(stage + 1, emitted)
        if stage == 0:
            self._stores(self.facts.stores(0, inner=False))
        self._stores(self.facts.stores(stage + 1, inner=False))

    def _row_pass(self, stage: int, reduces: list[int], stores: list[Store]) -> None:
        loops = self.kernel.inner
        accumulators = [self._declare_accumulator(k) for k in reduces]
        scans = self._scans(stage, reduces, stores)
        for line in self.scans.declare(scans):
            self.out.line(line)
        blocked = self._blocked(reduces)
        if blocked:
            self._declare_wide(reduces)
        for loop in loops[:-1]:
            self._open_loops([loop])
        last = loops[-1]
        size = index_text(last.extent)
        if blocked:
            self.out.open(f"for (int64_t block = 0; block < {size}; block += {BLOCK})")
            self.out.line(
                f"const int64_t stop = {size} - block < {BLOCK} ? {size} : block + {BLOCK};"
            )
            self._partials(reduces, accumulators)
        self._open_keys(reduces, "part" if blocked else "v")
        if not scans:
            self._simd(reduces, accumulators, blocked)
        start, stop = ("block", "stop") if blocked else ("0", size)
        self.out.open(
            f"for (int64_t {last.var.name} = {start}; {last.var.name} < {stop}; {last.var.name}++)"
        )
        self._inner_body(stage, reduces, stores, "part" if blocked else "v")
        self.out.close()
        self._close_keys(reduces, "part" if blocked else "v")
        if blocked:
            self._add_partials(reduces)
            self.out.close()
        self.out.close(len(loops) - 1)
        if blocked:
            self._narrow(reduces)

    def _in_pass(self, stage: int, reduces: list[int], stores: list[Store]) -> list[int]:
        """What a pass computes for each inner point."""
        roots = [a for k in reduces for a in _args(self.kernel, k)] + [s.value for s in stores]
        stop = frozenset(k for k in self.saved if self._saved_before(k, stage))
        outer = {k for k, inner in enumerate(self.facts.inner) if not inner}
        return [k for k in self.facts.needed(roots, stop=stop | outer) if k not in outer]

    def _scans(self, stage: int, reduces: list[int], stores: list[Store]) -> list[int]:
        found = self._in_pass(stage, reduces, stores)
        return [k for k in found if isinstance(self.kernel.values[k], Scan)]

    def _inner_body(self, stage: int, reduces: list[int], stores: list[Store], prefix: str) -> None:
        stop = frozenset(k for k in self.saved if self._saved_before(k, stage))
        for k in self._in_pass(stage, reduces, stores):
            value = self.kernel.values[k]
            if isinstance(value, Scan):
                for line in self.scans.step(k):
                    self.out.line(line)
                continue
            if k in stop:
                index = self.kernel.inner[-1].var.name
                self.out.line(f"const {REGISTER[value.dtype]} v{k} = {self.saved[k]}[{index}];")
                continue
            self.out.line(self.names.declare(k))
            if k in self.saved:
                self.out.line(f"{self.saved[k]}[{self.kernel.inner[-1].var.name}] = v{k};")
        for k in reduces:
            self.out.line(self._key_step(k) or self._step(k, f"{prefix}{k}"))
        self._stores(stores)

    # --- floating-point extremes, compared as integers in vector loops -----------------------------------

    def _keyed(self, position: int) -> tuple[str, Accumulator] | None:
        value = self.kernel.values[position]
        assert isinstance(value, Reduce)
        if value.op.startswith("arg"):
            return None
        how = self._accumulator(position)
        return (value.op, how) if how.key else None

    def _key_step(self, position: int) -> str | None:
        found = self._keyed(position)
        value = self.kernel.values[position]
        if found is None or not isinstance(value, Reduce):
            return None
        op, how = found
        return key_step(op, how.register, f"key{position}", self.names.operand(value.args[0]))

    def _open_keys(self, reduces: list[int], prefix: str) -> None:
        for k in reduces:
            if (found := self._keyed(k)) is not None:
                op, how = found
                self.out.line(f"{how.key} key{k} = {op}_key_{how.register}({prefix}{k});")

    def _close_keys(self, reduces: list[int], prefix: str) -> None:
        for k in reduces:
            if (found := self._keyed(k)) is not None:
                self.out.line(f"{prefix}{k} = key_value_{found[1].register}(key{k});")

    def _step(self, position: int, target: str) -> str:
        value = self.kernel.values[position]
        assert isinstance(value, Reduce)
        if value.op.startswith("arg"):
            operands = [self.names.operand(k) for k in value.args]
            return arg_step(value.op, f"best{position}", target, *operands)
        x = self.names.operand(value.args[0])
        return self._accumulator(position).step.format(acc=target, x=x)

    def _accumulator(self, position: int) -> Accumulator:
        value = self.kernel.values[position]
        assert isinstance(value, Reduce)
        return accumulator(value.op, value.dtype)

    def _declare_accumulator(self, position: int) -> Accumulator | None:
        value = self.kernel.values[position]
        assert isinstance(value, Reduce)
        if value.op.startswith("arg"):
            operand = self.kernel.values[value.args[0]].dtype
            self.out.line(f"{REGISTER[operand]} best{position} = 0; int64_t v{position} = -1;")
            return None
        how = accumulator(value.op, value.dtype)
        self.out.line(f"{how.register} v{position} = {how.identity};")
        return how

    def _blocked(self, reduces: list[int]) -> bool:
        """Whether this pass sums so many numbers that they should be added block by block."""
        kinds = [self.kernel.values[k] for k in reduces]
        if not any(
            isinstance(v, Reduce) and v.op == "sum" and v.dtype.is_floating_point for v in kinds
        ):
            return False
        if any(isinstance(v, Reduce) and v.op.startswith("arg") for v in kinds):
            return False
        count = product(loop.extent for loop in self.kernel.inner).as_int()
        return count is None or count > 2 * BLOCK

    def _partials(self, reduces: list[int], accumulators: list[Accumulator | None]) -> None:
        for k, how in zip(reduces, accumulators, strict=True):
            assert how is not None
            self.out.line(f"{how.register} part{k} = {how.identity};")

    def _declare_wide(self, reduces: list[int]) -> None:
        for k in reduces:
            how = self._accumulator(k)
            if how.wide != how.register:
                self.out.line(f"{how.wide} wide{k} = {how.identity};")

    def _add_partials(self, reduces: list[int]) -> None:
        for k in reduces:
            how = self._accumulator(k)
            target = f"wide{k}" if how.wide != how.register else f"v{k}"
            self.out.line(how.step.format(acc=target, x=f"part{k}"))

    def _narrow(self, reduces: list[int]) -> None:
        for k in reduces:
            how = self._accumulator(k)
            if how.wide != how.register:
                self.out.line(f"v{k} = ({how.register})wide{k};")

    def _simd(
        self, reduces: list[int], accumulators: list[Accumulator | None], blocked: bool
    ) -> None:
        if any(how is None or not how.clause for how in accumulators):
            return
        prefix = "part" if blocked else "v"
        clauses = [
            f" reduction({how.clause}:{'key' if how.key else prefix}{k})"
            for k, how in zip(reduces, accumulators, strict=True)
            if how is not None
        ]
        self.out.line(f"#pragma omp simd{''.join(clauses)}")

    # --- values kept for a later pass -----------------------------------------------------------------

    def _plan_row_cache(self) -> None:
        if len(self.kernel.inner) != 1:
            return
        size = self.kernel.inner[0].extent.as_int()
        if size is None or size > ROW_CACHE:
            return
        uses: dict[int, set[int]] = {}
        for stage in range(self.facts.last_stage + 1):
            reduces = self.facts.reduces(stage)
            roots = [a for k in reduces for a in _args(self.kernel, k)]
            roots += [s.value for s in self.facts.stores(stage, inner=True)]
            outer = frozenset(k for k, inner in enumerate(self.facts.inner) if not inner)
            for k in self.facts.needed(roots, stop=outer):
                uses.setdefault(k, set()).add(stage)
        for k, stages in uses.items():
            value = self.kernel.values[k]
            if len(stages) > 1 and isinstance(value, Compute) and value.op in EXPENSIVE:
                self.saved[k] = f"row{k}"
                self.out.line(f"{REGISTER[value.dtype]} row{k}[{size}];")

    def _saved_before(self, position: int, stage: int) -> bool:
        """Whether an earlier pass has computed the value."""
        for earlier in range(stage):
            reduces = self.facts.reduces(earlier)
            roots = [a for k in reduces for a in _args(self.kernel, k)]
            roots += [s.value for s in self.facts.stores(earlier, inner=True)]
            if position in self.facts.needed(roots):
                return True
        return False

    # --- passes shared by threads ---------------------------------------------------------------------

    def _shared_pass(self, stage: int) -> None:
        reduces = self.facts.reduces(stage)
        stores = self.facts.stores(stage, inner=True)
        if not reduces and not stores:
            return
        accumulators = [self._accumulator(k) for k in reduces]
        for k, how in zip(reduces, accumulators, strict=True):
            self.out.line(f"{how.register} v{k} = {how.identity};")
            self.out.line(f"{how.wide} shared{k}[threads];")
        first, *rest = self.kernel.inner
        size = index_text(first.extent)
        self.out.line(f"const int64_t team{stage} = {self._team(self._inner_work())};")
        self.out.line(
            f"#pragma omp parallel num_threads(team{stage}) if(parallel: team{stage} > 1)"
        )
        self.out.open("")
        self.out.line("const int64_t self = omp_get_thread_num();")
        self.out.line(f"const int64_t begin = ({size}) * self / team{stage};")
        self.out.line(f"const int64_t end = ({size}) * (self + 1) / team{stage};")
        for k, how in zip(reduces, accumulators, strict=True):
            self.out.line(f"{how.wide} own{k} = {how.identity};")
        self._shared_loops(stage, first, rest, reduces, stores)
        for k in reduces:
            self.out.line(f"shared{k}[self] = own{k};")
        self.out.close()
        for k, how in zip(reduces, accumulators, strict=True):
            self.out.line(f"{how.wide} total{k} = {how.identity};")
            step = how.step.format(acc=f"total{k}", x=f"shared{k}[t]")
            self.out.line(f"for (int64_t t = 0; t < team{stage}; t++) {step}")
            self.out.line(f"v{k} = total{k};")

    def _shared_loops(
        self, stage: int, first: Loop, rest: list[Loop], reduces: list[int], stores: list[Store]
    ) -> None:
        name = first.var.name
        if rest:
            self.out.open(f"for (int64_t {name} = begin; {name} < end; {name}++)")
            self._open_loops(rest[:-1])
            start, stop, name = "0", index_text(rest[-1].extent), rest[-1].var.name
            opened = len(rest)
        else:
            self.out.open(f"for (int64_t block = begin; block < end; block += {BLOCK})")
            self.out.line(f"const int64_t stop = end - block < {BLOCK} ? end : block + {BLOCK};")
            start, stop, opened = "block", "stop", 1
        accumulators: list[Accumulator | None] = [self._accumulator(k) for k in reduces]
        self._partials(reduces, accumulators)
        self._open_keys(reduces, "part")
        self._simd(reduces, accumulators, blocked=True)
        self.out.open(f"for (int64_t {name} = {start}; {name} < {stop}; {name}++)")
        self._inner_body(stage, reduces, stores, "part")
        self.out.close()
        self._close_keys(reduces, "part")
        for k in reduces:
            self.out.line(self._accumulator(k).step.format(acc=f"own{k}", x=f"part{k}"))
        self.out.close(opened)

    # --- column passes --------------------------------------------------------------------------------

    def _column_pass(self, stage: int, column: Loop) -> None:
        reduces = self.facts.reduces(stage)
        stores = self.facts.stores(stage, inner=True)
        if reduces or stores:
            self._column_loops(column, reduces, stores)
        done = [
            s
            for at in ((0, 1) if stage == 0 else (stage + 1,))
            for s in self.facts.stores(at, inner=False)
        ]
        if done:
            self._open_columns(column)
            self._column_values([s.value for s in done])
            self._stores(done)
            self.out.close()

    def _column_loops(self, column: Loop, reduces: list[int], stores: list[Store]) -> None:
        for k in reduces:
            how = self._accumulator(k)
            self.out.line(f"{how.wide} sum{k}[{COLUMNS}]; {how.register} part{k}[{COLUMNS}];")
            self.out.line(f"for (int64_t j = 0; j < width; j++) sum{k}[j] = {how.identity};")
        for line in self.column_scans.declare(self._scans(0, reduces, stores)):
            self.out.line(line)
        first, *rest = self.kernel.inner
        size, name = index_text(first.extent), first.var.name
        self.out.open(f"for (int64_t block = 0; block < {size}; block += {ROWS})")
        self.out.line(f"const int64_t stop = {size} - block < {ROWS} ? {size} : block + {ROWS};")
        for k in reduces:
            identity = self._accumulator(k).identity
            self.out.line(f"for (int64_t j = 0; j < width; j++) part{k}[j] = {identity};")
        self.out.open(f"for (int64_t {name} = block; {name} < stop; {name}++)")
        self._open_loops(rest)
        self._open_columns(column)
        self._column_values(
            [a for k in reduces for a in _args(self.kernel, k)] + [s.value for s in stores]
        )
        for k in reduces:
            self.out.line(self._step(k, f"part{k}[j]"))
        self._stores(stores)
        self.out.close(2 + len(rest))
        for k in reduces:
            step = self._accumulator(k).step.format(acc=f"sum{k}[j]", x=f"part{k}[j]")
            self.out.line(f"for (int64_t j = 0; j < width; j++) {step}")
        self.out.close()

    def _open_columns(self, column: Loop) -> None:
        self.out.line("#pragma omp simd")
        self.out.open("for (int64_t j = 0; j < width; j++)")
        self.out.line(f"const int64_t {column.var.name} = tile + j;")

    def _column_values(self, roots: list[int]) -> None:
        """Everything is computed per column; finished reductions are read from their vectors."""
        reduces = frozenset(k for k, v in enumerate(self.kernel.values) if isinstance(v, Reduce))
        for k in self.facts.needed(roots, stop=reduces):
            value = self.kernel.values[k]
            if isinstance(value, Reduce):
                self.out.line(f"const {REGISTER[value.dtype]} v{k} = sum{k}[j];")
            elif isinstance(value, Scan):
                for line in self.column_scans.step(k):
                    self.out.line(line)
            elif not isinstance(value, Constant):
                self.out.line(self.names.declare(k))


def _args(kernel: Kernel, position: int) -> tuple[int, ...]:
    value = kernel.values[position]
    assert isinstance(value, Reduce)
    return value.args


__all__ = ["FunctionWriter", "function_text", "strategy"]
