"""Lines of C, and the loops of a kernel as C: which are shared by threads, which are vectors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from fxstack_inductor.codegen.analysis import Analysis, analyse
from fxstack_inductor.codegen.c_halves import RUN
from fxstack_inductor.codegen.c_text import Names, index_text
from fxstack_inductor.codegen.c_threads import Range, shared_heads, work_condition
from fxstack_inductor.ir.kernel import (
    Constant,
    Kernel,
    Loop,
    index_operands,
    index_variables,
    operands,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fxstack_inductor.codegen.c_halves import Halves
    from fxstack_inductor.ir.kernel import Store


class Writer:
    """Lines of C, indented by braces."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.first: list[str] = []
        """What runs before threads share the lines."""
        self.depth = 1
        self.shared = False
        """Whether the lines are for one of several threads."""

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
    """Opens loops and writes values; a kernel of less work than ``grain`` elements (None: any) stays on one thread."""

    def __init__(self, kernel: Kernel, grain: int | None) -> None:
        self.kernel = kernel
        self.names = Names(kernel)
        self.out = Writer()
        self.grain = grain
        self.facts: Analysis = analyse(kernel)

    def _share(self, loops: Sequence[Range], *, simd: bool = False) -> None:
        """Open ``loops``, whose points threads share where the kernel has work for several; the last may become a vector."""
        pragma = ["#pragma omp simd"] if simd else []
        if not loops or work_condition(self.kernel, self.grain) is None:
            for depth, loop in enumerate(loops, 1):
                self._lines(pragma if depth == len(loops) else [])
                self.out.open(loop.text())
            return
        self.out.shared = True
        for depth, (declared, head, inside) in enumerate(shared_heads(loops), 1):
            self._lines(declared + (pragma if depth == len(loops) else []))
            self.out.open(head)
            self.out.line(inside)

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.out.line(line)

    def _open_loops(self, loops: Iterable[Loop]) -> None:
        for loop in loops:
            name = loop.var.name
            self.out.open(f"for (int64_t {name} = 0; {name} < {index_text(loop.extent)}; {name}++)")

    @contextmanager
    def _converted(self, halves: Halves, first: str, count: str, most: str) -> Iterator[None]:
        """Around a loop over ``j`` below ``count``: half precision that it has in arrays."""
        self._lines(halves.enter(self.names, first, count, most))
        yield
        self._lines(halves.leave(self.names, first, count))

    @contextmanager
    def _runs(self, halves: Halves, span: tuple[str, str], head: str) -> Iterator[None]:
        """The loop over ``halves.var`` from ``span[0]`` to ``span[1]``, behind ``head``; in runs where halves are converted."""
        start, stop = span
        if not halves:
            self._lines([head] if head else [])
            self.out.open(Range(halves.var.name, stop, start=start).text())
            yield
            self.out.close()
            return
        self.out.open(Range("run", stop, str(RUN), start).text())
        with self._run(halves, "run", stop, head):
            yield
        self.out.close()

    @contextmanager
    def _run(self, halves: Halves, first: str, stop: str, head: str) -> Iterator[None]:
        """The loop from ``first`` to ``stop``, but over ``RUN`` points at most."""
        self.out.line(f"const int64_t count = {stop} - {first} < {RUN} ? {stop} - {first} : {RUN};")
        with self._converted(halves, first, "count", str(RUN)):
            self._lines([head] if head else [])
            self.out.open(Range("j", "count").text())
            self.out.line(f"const int64_t {halves.var.name} = {first} + j;")
            yield
            self.out.close()

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
