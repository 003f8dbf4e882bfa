"""Write out short inner loops point by point: a reduction over few elements becomes arithmetic on values in registers.

The loop over the outer points is then the vector loop, and it reads each element once, however many passes the
kernel had. Rows of few elements need neither sums across the lanes of a vector nor a rest of each row. An element of the
row at a computed place, such as that of its extreme, is chosen among the values in registers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import product, zip_longest

import torch

from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import Expr, Var, integer, value_var
from fxstack_inductor.ir.expr import product as product_of
from fxstack_inductor.ir.kernel import (
    Check,
    Compute,
    Constant,
    Kernel,
    Load,
    Reduce,
    Store,
    Value,
    index_operands,
    with_expressions,
    with_operands,
)
from fxstack_inductor.ir.scalar_ops import EXPENSIVE, HALF_ROUNDINGS
from fxstack_inductor.schedule.condition_splits import folded

MAX_POINTS = 15
"""The most inner points that are written out; rows of 16 elements are vectors."""
MAX_PLACES = 8
"""The same for points that lie across memory: their loads and stores go through as many places in memory at once."""
VECTOR = 8
"""Loops over outer points with fewer points than this are written out, too."""
MIN_LOOP_POINTS = 16
"""The least points of the loop that becomes the vector loop."""
MAX_VALUES = 160
"""The most values of a kernel with its inner points written out: the compiler reads each of them."""
MAX_COPIED = 2 * MAX_VALUES
"""The same before conditions on the inner points, which choose among loads, are decided."""
MAX_CHOSEN = 2 * MAX_VALUES
"""The same, with the values that choose elements at computed places."""
STEPS = {
    "sum": "add",
    "prod": "mul",
    "max": "maximum",
    "min": "minimum",
    "any": "bitwise_or",
    "all": "bitwise_and",
}
"""The operation of two values that a reduction repeats."""
FIRST = {"sum": "0"}
"""What a reduction begins with; other reductions begin with their first element, which gives the same result."""


def unrolled(kernel: Kernel, *, across: bool) -> Kernel:
    """Return ``kernel`` without inner loops if these are short; else ``kernel``. ``across``: they lie across memory.

    Of a kernel without inner loops, the last loop is written out if it is too short for a vector loop.
    """
    if not kernel.inner:
        short = replace(kernel, outer=kernel.outer[:-1], inner=kernel.outer[-1:])
        found = unrolled(short, across=False) if too_short(kernel) else short
        return kernel if found is short else found
    facts, points = analyse(kernel), product_of(loop.extent for loop in kernel.inner).as_int()
    most = MAX_PLACES if across else MAX_POINTS
    if not kernel.inner or points is None or not 1 <= points <= most or kernel.ordered:
        return kernel
    if not kernel.outer or (kernel.outer[-1].extent.as_int() or MIN_LOOP_POINTS) < MIN_LOOP_POINTS:
        return kernel
    if any(isinstance(v, Load) and v.buffer in kernel.written for v in kernel.values):
        return kernel
    reduces = [v for v in kernel.values if isinstance(v, Reduce)]
    conditional = any(isinstance(v, Load) and v.mask is not None for v in kernel.values)
    copied = len(facts.outer) + points * sum(facts.inner)
    if not all(v.op in STEPS for v in reduces) or copied > (MAX_COPIED if conditional else MAX_VALUES):
        return kernel
    found = folded(_Unroller(kernel).kernel())
    roots = {k for store in found.stores for k in (store.value, *index_operands(store.index))}
    return found if len(analyse(found).needed(roots)) <= MAX_VALUES else kernel


def too_short(kernel: Kernel) -> bool:
    """Whether the last loop is so short that what it computes of its elements is worth the way through arrays."""
    size = kernel.outer[-1].extent.as_int() if len(kernel.outer) > 1 else None
    if size is None or size >= VECTOR:
        return False
    computed = [v.op for v in kernel.values if isinstance(v, Compute)]
    return not EXPENSIVE.isdisjoint(computed) or (bool(computed) and _reads_halves_apart(kernel))


def _reads_halves_apart(kernel: Kernel) -> bool:
    """Whether half-precision elements that the last loop reads are no neighbours: that loop takes them one by one."""
    var = kernel.outer[-1].var
    dtypes = {ref.name: ref.dtype for ref in kernel.buffers}
    halves = (v for v in kernel.values if isinstance(v, Load) and dtypes[v.buffer] in HALF_ROUNDINGS.values())
    steps = (v.index.coefficient(var) for v in halves if v.mask is None)
    return any(step is None or step.as_int() not in {0, 1} for step in steps)


class _Unroller:
    """Copies the values of a kernel, once for each inner point that they differ at."""

    def __init__(self, source: Kernel) -> None:
        self.source = source
        self.values: list[Value] = []
        self.loads: dict[Load, int] = {}
        """The positions of the copied loads."""
        self.points = [
            {loop.var: integer(at) for loop, at in zip(source.inner, place, strict=True)}
            for place in product(*(range(loop.extent.as_int() or 0) for loop in source.inner))
        ]
        self.places: list[list[int]] = [[] for _ in self.points]
        """For each inner point, the positions of the copied values."""

    def kernel(self) -> Kernel:
        """Return the kernel of the copies."""
        facts = analyse(self.source)
        for k, value in enumerate(self.source.values):
            if isinstance(value, Reduce):
                found = [self._reduced(value)] * len(self.points)
            elif facts.inner[k]:
                found = [self._added(self._copy(value, at)) for at in range(len(self.points))]
            else:
                found = [self._added(self._copy(value, 0))] * len(self.points)
            for places, position in zip(self.places, found, strict=True):
                places.append(position)
        stores = [
            self._store(store, at)
            for store in self.source.stores
            for at in (range(len(self.points)) if facts.store_inner(store) else (0,))
        ]
        return replace(self.source, inner=(), values=tuple(self.values), stores=tuple(stores))

    def _add(self, value: Value) -> int:
        """Append a value; return its position."""
        self.values.append(value)
        return len(self.values) - 1

    def _added(self, value: Value) -> int:
        """Return the position of a copied value: a load at a place in a row that is in registers is a choice among these."""
        if not isinstance(value, Load):
            return self._add(value)
        elements = self._elements(value)
        if elements is None or len(self.values) + 3 * len(elements) > MAX_CHOSEN:
            return self.loads.setdefault(value, self._add(value))
        result, *others = elements
        place = self._add(Compute("cast", index_operands(value.index), torch.int32))
        for k, element in enumerate(others, 1):
            here = self._add(Compute("eq", (place, self._add(Constant(str(k), torch.int32))), torch.bool))
            result = self._add(Compute("where", (here, element, result), value.dtype))
        return result

    def _elements(self, load: Load) -> list[int] | None:
        """Return the positions of all elements among which the computed place of ``load`` chooses; None if one is not loaded."""
        places = index_operands(load.index)
        check = self.values[places[0]] if len(places) == 1 else None
        size = check.size.as_int() if isinstance(check, Check) and load.mask is None else None
        if size is None or not 1 <= size <= MAX_POINTS:
            return None
        var = Var(f"v{places[0]}", VarKind.VALUE)
        row = [replace(load, index=load.index.subs({var: integer(k)})) for k in range(size)]
        return [self.loads[each] for each in row] if all(each in self.loads for each in row) else None

    def _reduced(self, value: Reduce) -> int:
        """Append the steps of a reduction over all points; return the position of the result."""
        elements = [places[value.args[0]] for places in self.places]
        if value.op in FIRST:
            elements.insert(0, self._add(Constant(FIRST[value.op], value.dtype)))
        if value.op in {"max", "min"}:
            # GCC's time grows with a power of the longest chain of extremes: an extreme uses its first operand four times.
            while len(elements) > 1:
                pairs = zip_longest(elements[::2], elements[1::2])
                elements = [a if b is None else self._step(value, a, b) for a, b in pairs]
            return elements[0]
        return reduce(lambda result, element: self._step(value, result, element), elements)

    def _step(self, value: Reduce, left: int, right: int) -> int:
        """Append the combination of two partial results; return its position."""
        return self._add(Compute(STEPS[value.op], (left, right), value.dtype))

    def _copy(self, value: Value, at: int) -> Value:
        """Return ``value`` at the inner point ``at``."""
        moved = with_operands(value, self.places[at])
        return with_expressions(moved, lambda expr: self._moved(expr, at))

    def _store(self, store: Store, at: int) -> Store:
        return replace(store, index=self._moved(store.index, at), value=self.places[at][store.value])

    def _moved(self, expr: Expr, at: int) -> Expr:
        """Return an index expression at the inner point ``at``, with the positions of the copies."""
        names = {
            Var(f"v{k}", VarKind.VALUE): value_var(f"v{self.places[at][k]}") for k in index_operands(expr)
        }
        return expr.subs({**self.points[at], **names})
