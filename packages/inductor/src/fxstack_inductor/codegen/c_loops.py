"""Lines of C, and the loops of a kernel as C: which are shared by threads, which are vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_inductor.codegen.analysis import Analysis, analyse
from fxstack_inductor.codegen.c_text import Names, index_text
from fxstack_inductor.ir.expr import Expr, product
from fxstack_inductor.ir.kernel import (
    Constant,
    Kernel,
    Loop,
    index_operands,
    index_variables,
    operands,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fxstack_inductor.ir.kernel import Store


class Writer:
    """Lines of C, indented by braces."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        self.line(f"{text} {{")
        self.depth += 1

    def close(self, count: int = 1) -> None:
        for _ in range(count):
            self.depth -= 1
            self.line("}")


class LoopWriter:
    """Opens loops and writes values; a kernel of less work than ``grain`` elements stays on one thread."""

    def __init__(self, kernel: Kernel, grain: int) -> None:
        self.kernel = kernel
        self.names = Names(kernel)
        self.out = Writer()
        self.grain = grain
        self.facts: Analysis = analyse(kernel)

    def _parallel(self, loops: tuple[Loop, ...], *, simd: bool, every: bool = False) -> int:
        """Open the loops that threads share; returns how many were opened."""
        if not loops:
            return 0
        if simd:
            self._work_clause(1, simd=True)
            self._open_loops(loops)
            return 1
        count = max(1, len(loops) if every else len(loops) - 1)
        self._work_clause(count)
        self._open_loops(loops[:count])
        return count

    def _work_clause(self, count: int, *, simd: bool = False) -> None:
        work = self._total_work()
        known = work.as_int()
        if known is not None and known < self.grain:
            if simd:
                self.out.line("#pragma omp simd")
            return
        condition = (
            "threads > 1"
            if known is not None
            else f"threads > 1 && ({index_text(work)}) >= {self.grain}"
        )
        collapse = f" collapse({count})" if count > 1 else ""
        kind = " simd" if simd else ""
        self.out.line(
            f"#pragma omp parallel for{kind}{collapse} schedule(static) num_threads(threads) if(parallel: {condition})"
        )

    def _total_work(self) -> Expr:
        loops = (*self.kernel.outer, *self.kernel.inner)
        return product(loop.extent for loop in loops)

    def _inner_work(self) -> Expr:
        return product(loop.extent for loop in self.kernel.inner)

    def _team(self, work: Expr) -> str:
        known = work.as_int()
        if known is not None:
            return "threads" if known >= self.grain else "1"
        return f"({index_text(work)}) >= {self.grain} ? threads : 1"

    def _open_loops(self, loops: Iterable[Loop]) -> None:
        for loop in loops:
            name = loop.var.name
            self.out.open(f"for (int64_t {name} = 0; {name} < {index_text(loop.extent)}; {name}++)")

    def _needed(self) -> list[int]:
        """What the stores and their addresses are computed from."""
        roots = {k for s in self.kernel.stores for k in (s.value, *index_operands(s.index))}
        return self.facts.needed(roots)

    def _varying(self, column: Loop) -> set[int]:
        """Values that differ from column to column."""
        found: set[int] = set()
        for k, value in enumerate(self.kernel.values):
            if isinstance(value, Constant):
                continue
            if column.var in index_variables(value) or found.intersection(operands(value)):
                found.add(k)
        return found

    def _values(self, positions: Iterable[int]) -> None:
        for k in positions:
            if not isinstance(self.kernel.values[k], Constant):
                self.out.line(self.names.declare(k))

    def _stores(self, stores: Iterable[Store]) -> None:
        for store in stores:
            self.out.line(self.names.store(store))
