"""Write kernels whose points lie a few elements apart: elements of a block of points move through stack arrays.

Kernels with short loops written out (``unrolled``) are such kernels: neighbouring elements belong to one point. GCC makes no
vectors of most groups of neighbours. Here each group is an array of contiguous rows, one for each place in a point.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fxstack_inductor.codegen.c.halves import halves
from fxstack_inductor.codegen.c.loops import LoopWriter
from fxstack_inductor.codegen.c.ops import STORAGE
from fxstack_inductor.codegen.c.ranges import Range, for_head, ranges
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import ZERO, Expr, integer
from fxstack_inductor.ir.kernel import Kernel, Load, Store, index_operands, once_per_kernel
from fxstack_inductor.schedule.condition_splits import segments

BLOCK = 64
"""The points of a block: whole cache lines of any type in each row of an array."""
MIN_STEP = 3
"""Compilers make vectors of pairs of neighbours themselves."""
MAX_STEP = 64
"""Points that lie farther apart than this share no cache line."""


@dataclass(frozen=True, slots=True)
class Group:
    """Accesses of ``buffer`` that differ in a constant; ``start`` is the offset of the first, at the first point."""

    name: str
    """The name of the stack array."""
    buffer: str
    start: Expr
    step: int
    """The elements from point to point."""
    rows: dict[int, list[int]]
    """For each row of the array, the positions of the values that a load reads there; of stores, in ``Kernel.stores``."""

    @property
    def count(self) -> int:
        """The number of rows."""
        return max(self.rows) + 1


def grouped(kernel: Kernel, accesses: Iterable[tuple[int, Load | Store]], name: str) -> list[Group]:
    """Return the groups of the accesses that lie apart along the last loop; ``name`` begins the names of the arrays."""
    var = kernel.outer[-1].var
    found: defaultdict[tuple[str, Expr, int], list[tuple[int, int]]] = defaultdict(list)
    for k, access in accesses:
        coefficient = access.index.coefficient(var)
        size = None if coefficient is None or index_operands(access.index) else coefficient.as_int()
        if size is None or not MIN_STEP <= size <= MAX_STEP:
            continue
        offset = dict(access.index.terms).get((), 0)
        base = (access.index - offset).subs({var: ZERO})
        found[access.buffer, base, size].append((offset, k))
    groups: list[Group] = []
    for (buffer, base, between), members in found.items():
        first = min(offset for offset, _ in members)
        rows: defaultdict[int, list[int]] = defaultdict(list)
        for offset, k in members:
            rows[offset - first].append(k)
        groups.append(Group(f"{name}{len(groups)}", buffer, base + first, between, dict(rows)))
    return groups


def loads_of(kernel: Kernel) -> list[Group]:
    """Return the groups of neighbouring loads that fit into one point each."""
    roots = [k for store in kernel.stores for k in (store.value, *index_operands(store.index))]
    plain = (
        (k, v)
        for k in analyse(kernel).needed(roots)
        if isinstance(v := kernel.values[k], Load) and v.mask is None and v.buffer not in kernel.written
    )
    return [g for g in grouped(kernel, plain, "split") if g.count <= g.step]


def stores_of(kernel: Kernel) -> list[Group]:
    """Return the groups of neighbouring stores without gaps."""
    groups = grouped(kernel, enumerate(kernel.stores), "joined")
    return [g for g in groups if g.count == len(g.rows) <= g.step]


@once_per_kernel
def interleaved(kernel: Kernel) -> bool:
    """Whether a kernel without inner loops reads or writes groups of neighbours at each point."""
    if not kernel.outer or len(segments(kernel)) > 1:
        return False
    return any(len(g.rows) >= MIN_STEP for g in (*loads_of(kernel), *stores_of(kernel)))


class InterleavedWriter(LoopWriter):
    """Writes the body of one function of interleaved points."""

    def interleaved(self) -> None:
        """Write blocks of points, which threads share: rows of elements, the vector loop, and the way back."""
        *others, last = self.kernel.outer
        self._share([*ranges(others), Range("from", last, str(BLOCK), integer(BLOCK))])
        self.out.line(f"const int64_t count = min_int64_t({c_index(last.extent)} - from, {BLOCK});")
        loads, stores = loads_of(self.kernel), stores_of(self.kernel)
        for group in loads:
            self.out.write_lines(self._rows_of(group))
        for group in stores:
            self.out.line(self._array(group))
            for row, members in group.rows.items():
                self.names.targets.update({self.kernel.stores[k]: f"{group.name}[{row}]" for k in members})
        outside, inside = self._split(last)
        conversions = halves(self.names, last.var, inside, self.kernel.stores, outside, chunk=BLOCK)
        with self._converted(conversions, "from", "count", str(BLOCK)):
            self.out.line(self._simd(inside))
            with self.out.block(for_head("j", "0", "count")):
                self.out.line(f"const int64_t {last.var.name} = from + j;")
                self._values(inside)
                self._stores(self.kernel.stores)
        for group in stores:
            target, source = self._place(group), self._rows(group)
            self.out.line(f"transpose_{self._word(group)}({source}, {target}, count, {group.count});")
        self.out.close(1 + len(others))

    def _rows_of(self, group: Group) -> Iterator[str]:
        """Yield C that copies the elements of a block into the rows of the group's array, and read them there."""
        for row, members in group.rows.items():
            self.names.staged.update(dict.fromkeys(members, f"{group.name}[{row}]"))
        yield self._array(group)
        yield f"transpose_{self._word(group)}({self._place(group)}, {self._rows(group)}, {group.count}, count);"

    def _array(self, group: Group) -> str:
        """Return the declaration of a group's array."""
        kind = STORAGE[self.names.dtypes[group.buffer]]
        return f"{kind} {group.name}[{group.count}][{BLOCK}] __attribute__((aligned(64)));"

    def _word(self, group: Group) -> str:
        """Return the type as which elements are moved."""
        return f"uint{8 * self.names.dtypes[group.buffer].itemsize}_t"

    def _place(self, group: Group) -> str:
        """Return, as arguments, the address of the block's first element of a group and the step between points."""
        address = f"{self.names.buffers[group.buffer]} + {c_index(group.start)} + from * {group.step}"
        return f"({self._word(group)}*)({address}), {group.step}"

    def _rows(self, group: Group) -> str:
        """Return, as arguments, the address of a group's array and the step between its rows."""
        return f"({self._word(group)}*){group.name}, {BLOCK}"
