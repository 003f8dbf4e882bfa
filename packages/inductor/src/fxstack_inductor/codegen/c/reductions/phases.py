"""Split a pass with scans into phases: vector loops around the scans, with stack arrays between them.

A scan needs the elements one after the other, but its operands and the values made of its result do not. Phase ``n``
has the values that depend on ``n`` scans in a row: a vector loop over a tile computes them, and then the next
scans run over the tile. A value that a later phase needs, or that a scan takes, is in a stack array in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fxstack_inductor.codegen.c.ops import REGISTER
from fxstack_inductor.codegen.c.reductions.scan import ScanText
from fxstack_inductor.codegen.c.text import Names
from fxstack_inductor.ir.analysis import Analysis
from fxstack_inductor.ir.kernel import (
    Constant,
    IndexValue,
    Kernel,
    Load,
    Scan,
    Store,
    index_operands,
    operands,
)

TILE = 128
"""The most elements of a row in a stack array: the arrays of several rows fit into the first-level cache."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One vector loop over a tile, and the scans that follow it; numbers are positions of values."""

    values: list[int]
    """The values of the loop, in order."""
    read: frozenset[int]
    """The values among them that an earlier phase left in a stack array."""
    kept: list[int]
    """The values that the loop leaves in a stack array."""
    stores: list[Store]
    reduces: list[int]
    """The reductions that take in elements in the loop."""
    scans: list[int]

    @property
    def computed(self) -> list[int]:
        """The values that the loop computes."""
        return [k for k in self.values if k not in self.read]


class Planner:
    """Plans the phases of the values ``computed``, which one pass over the inner loops needs.

    Operands of the values ``ready`` are not needed. Scans read the values ``in_place`` from memory.
    """

    def __init__(
        self,
        facts: Analysis,
        computed: Sequence[int],
        ready: Container[int] = (),
        in_place: Collection[int] = (),
    ) -> None:
        self.kernel: Kernel = facts.kernel
        self.facts = facts
        self.computed = computed
        self.ready = ready
        self.in_place = in_place
        self.depth: dict[int, int] = {}
        for k in computed:
            value = self.kernel.values[k]
            below = () if k in ready else operands(value)
            self.depth[k] = self._level(below) + self._is_scan(k)

    def phases(self, reduces: Iterable[int], stores: Iterable[Store]) -> list[Phase]:
        """Return the phases, first to last. They are found from the last to the first: later phases say what to keep."""
        ends = {s: (s.value, *index_operands(s.index)) for s in stores}
        taken = {k: self.kernel.reduction(k).args for k in reduces}
        crossing: set[int] = set()
        found: list[Phase] = []
        for n in reversed(range(max(self.depth.values(), default=0) + 1)):
            scans = [k for k in self.computed if self._is_scan(k) and self.depth[k] == n + 1]
            crossing.update(a for k in scans for a in self.inputs(k) if a not in self.in_place)
            kept = sorted(k for k in crossing if self._level((k,)) == n and not self._is_scan(k))
            here = [s for s, roots in ends.items() if self._level(roots) == n]
            reduced = [k for k, roots in taken.items() if self._level(roots) == n]
            roots = [*kept, *(k for s in here for k in ends[s]), *(k for r in reduced for k in taken[r])]
            values, read = self._needed(roots, n)
            crossing |= read
            found.append(Phase(values, frozenset(read), kept, here, reduced, scans))
        return found[::-1]

    def inputs(self, scan: int) -> list[int]:
        """Return the operands of a scan that are elements of arrays."""
        return [a for a in operands(self.kernel.values[scan]) if not self._is_position(a)]

    def _level(self, roots: Iterable[int]) -> int:
        """Return the phase in which all ``roots`` are known."""
        return max((self.depth.get(k, 0) for k in roots), default=0)

    def _is_scan(self, k: int) -> bool:
        """Whether a value is a scan that is still to be computed."""
        return isinstance(self.kernel.values[k], Scan) and k not in self.ready

    def _is_position(self, k: int) -> bool:
        """Whether a value follows from the loop variables alone."""
        value = self.kernel.values[k]
        return isinstance(value, (Constant, IndexValue)) and not operands(value)

    def _needed(self, roots: Iterable[int], n: int) -> tuple[list[int], set[int]]:
        """Return the values that phase ``n`` needs for ``roots``, in order, and the values among them to be read."""
        seen: set[int] = set()
        read: set[int] = set()
        stack = list(roots)
        while stack:
            k = stack.pop()
            if k in seen or k in self.facts.outer:
                continue
            seen.add(k)
            if self._is_scan(k) or (self.depth[k] < n and not self._repeats(k)):
                read.add(k)
            elif k not in self.ready:
                stack.extend(operands(self.kernel.values[k]))
        return sorted(seen), read

    def _repeats(self, k: int) -> bool:
        """Whether a phase computes a value of an earlier phase again, because this costs no more than an array."""
        value = self.kernel.values[k]
        if isinstance(value, Load):
            return value.mask is None and not operands(value) and value.buffer not in self.kernel.written
        return k in self.ready or self._is_position(k)


def tiled(planner: Planner, phases: Sequence[Phase]) -> list[int]:
    """Return the values that are in stack arrays between phases."""
    found = {k for phase in phases for k in (*phase.kept, *phase.read)}
    found.update(a for phase in phases for k in phase.scans for a in planner.inputs(k))
    return sorted(k for k in found if k not in planner.in_place)


def arrays(text: ScanText, positions: Sequence[int], rows: int, size: int) -> Iterator[str]:
    """Yield the declarations of the stack arrays ``tile<k>`` of ``rows`` and ``size`` columns."""
    for k in positions:
        yield f"{text.kind(k)} tile{k}[{rows}][{size}] __attribute__((aligned(64)));"


def vector_body(
    names: Names, phase: Phase, row: str, declare: Callable[[int], Iterable[str]]
) -> Iterator[str]:
    """Yield the statements of the vector loop over ``j`` of a phase, without its stores.

    ``declare`` returns the declaration of a value that the loop computes.
    """
    for k in phase.values:
        if k in phase.read:
            kind = REGISTER[names.kernel.values[k].dtype]
            yield f"const {kind} v{k} = tile{k}[{row}][j];"
        else:
            yield from declare(k)
    yield from (f"tile{k}[{row}][j] = {names.operand(k)};" for k in phase.kept)


def scan_body(
    names: Names, text: ScanText, planner: Planner, scans: Sequence[int], places: Mapping[int, str]
) -> Iterator[str]:
    """Yield the statements of ``scans`` for one element; ``places``: where arrays have it, by value."""
    used = sorted({a for k in scans for a in operands(names.kernel.values[k])})
    read = {a for k in scans for a in planner.inputs(k)}
    for a in used:
        value = names.kernel.values[a]
        if a in read:
            yield f"const {REGISTER[value.dtype]} v{a} = {places[a]};"
        elif not isinstance(value, Constant):
            yield names.declare(a)
    for k in scans:
        yield from text.step(k)
        if k in places:
            yield f"{places[k]} = v{k};"
