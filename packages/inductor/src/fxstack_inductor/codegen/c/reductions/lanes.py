"""Write reductions along rows of known length: partial results in arrays of lanes, folded at the end.

``#pragma omp simd reduction`` keeps one vector of partial results and adds its lanes one after the other at
the end of each row, which takes as long as a hundred elements. Here every lane is an element of an array that
the compiler keeps in registers, and halves are added to halves. Several vectors of lanes do not wait for each
other. The number of lanes does not depend on what the kernel computes besides: fusion does not change a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fxstack_inductor.codegen.c.claims import CALLS
from fxstack_inductor.codegen.c.halves import NEAR
from fxstack_inductor.codegen.c.reductions.combine import Accumulator, plain_step
from fxstack_inductor.ir.expr import Var
from fxstack_inductor.ir.kernel import Check, Compute, Kernel, Load, Scan

# Limits: rows of symbolic length, and long rows of a length that is not a multiple of 16, use '#pragma omp simd
# reduction', which adds lanes in order.

WIDTHS = (64, 32, 16)
"""Numbers of lanes, largest first; a row must be a multiple of the number, or have a rest."""

LONG = 4096
"""Rows from this length on have no rest: the last lanes would end where the row ends, and leave out what the ones before have."""
WITH_CALLS = 256
"""The same where a function that has no vector version is called for each of the repeated elements."""
STEPS_OF_REST = 4
"""The least number of steps in a row with a rest, if there is a choice: the last step repeats elements."""

VECTOR = 64
"""Bytes of a vector. GCC makes all vectors of a loop as long as the vectors of the narrowest elements. With fewer
lanes than a vector has bytes, or with half-precision numbers, GCC makes short vectors of everything.
"""

HALF = 2
"""Bytes of a half-precision number, which loops with a rest convert beforehand."""
FOLDED = 16
FOLDS = frozenset(
    {
        "fold_sum_float",
        "fold_sum_double",
        *(f"fold_{op}_{key}" for op in ("max", "min") for key in ("int32_t", "int64_t")),
    }
)
"""Functions of ``prelude.h`` that fold ``FOLDED`` lanes."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The ``width`` lanes of the reduction at ``position``."""

    position: int
    op: str
    """The reduction, for example ``sum``."""
    how: Accumulator
    """The C text of the reduction."""
    width: int
    rest: bool = False
    """Whether the first ``before`` lanes of a step repeat elements that the step before has taken in."""

    rows: int = 0
    """The number of rows ``i`` whose lanes exist at the same time; 0: those of one row."""

    @property
    def name(self) -> str:
        """The C text of the array of lanes."""
        return f"lane{self.position}[i]" if self.rows else f"lane{self.position}"

    @property
    def array(self) -> str:
        """The declaration of the lanes, of all rows."""
        rows = f"[{self.rows}]" if self.rows else ""
        kind = self.how.key or self.how.register
        return f"{kind} lane{self.position}{rows}[{self.width}] __attribute__((aligned(64)));"

    def declare(self, start: str) -> Iterator[str]:
        """Yield C that declares the lanes of one row, and begins."""
        yield self.array
        yield from self.begin(start)

    def begin(self, start: str) -> Iterator[str]:
        """Yield C that fills the lanes. ``start``: the result so far, with which the lanes of an extreme start."""
        first = self.how.identity
        if self.how.key:
            first = f"first{self.position}"
            yield f"const {self.how.key} {first} = {self.op}_key_{self.how.register}({start});"
        yield f"for (int64_t j = 0; j < {self.width}; j++) {self.name}[j] = {first};"

    def step(self, x: str) -> str:
        """Return the statement that takes ``x`` into lane ``j``."""
        if self.rest and self.op in {"sum", "prod"}:
            x = f"((int32_t)j < before ? {self.how.identity} : {x})"
        if not self.how.key:
            return self.how.step.format(acc=f"{self.name}[j]", x=x)
        name, key = f"key{self.position}", f"{self.op}_key_{self.how.register}({x})"
        step = plain_step(self.op).format(acc=f"{self.name}[j]", x=name)
        return f"const {self.how.key} {name} = {key}; {step}"

    def fold(self, target: str) -> Iterator[str]:
        """Write C that folds halves of the lanes into each other until few are left, and these into ``target``."""
        step = plain_step(self.op) if self.how.key else self.how.step
        half, helper = self.width // 2, f"fold_{self.op}_{self.how.key or self.how.register}"
        least = FOLDED if helper in FOLDS else 1
        while half >= least:
            both = step.format(acc=f"{self.name}[j]", x=f"{self.name}[j + {half}]")
            yield f"for (int64_t j = 0; j < {half}; j++) {both}"
            half //= 2
        rest = f"{helper}({self.name})" if helper in FOLDS else f"{self.name}[0]"
        if self.how.key:
            yield f"{target} = key_value_{self.how.register}({rest});"
        else:
            yield self.how.step.format(acc=target, x=rest)


def width(kernel: Kernel, computed: Sequence[int], reduces: Iterable[int]) -> int | None:
    """Return the number of lanes for a pass with ``computed`` and ``reduces``; None if lanes do not pay."""
    size = kernel.inner[-1].extent.as_int() or 0
    values = [kernel.values[k] for k in computed]
    ops = [kernel.reduction(k).op for k in reduces]
    if not ops or any(op.startswith("arg") for op in ops):
        return None
    if any(isinstance(v, Scan) for v in values):
        return None
    sizes = [_bytes(kernel, v.buffer) for v in values if isinstance(v, Load)]
    least = VECTOR // min(sizes, default=4)
    exact = next((w for w in WIDTHS if w >= least and size and size % w == 0), None)
    return exact or width_with_rest(kernel, computed, reducing=True)


def width_with_rest(kernel: Kernel, computed: Sequence[int], *, reducing: bool = False) -> int | None:
    """Return the number of points in a step along a row with a rest, for a pass with ``computed``; None for other rows.

    A row of whole vectors of floats has a rest if lanes are to be more (``reducing``).
    Halves are converted before and after each step. A kernel that reads what it writes would read results of the step before.
    """
    size = kernel.inner[-1].extent.as_int() or 0
    loads = (v for k in computed if isinstance(v := kernel.values[k], Load))
    sizes = (_bytes(kernel, v.buffer) for v in loads)
    least = VECTOR // min((2 * n if n == HALF else n for n in sizes), default=4)
    if (size % WIDTHS[-1] == 0 and not reducing) or any(
        isinstance(kernel.values[k], Check) for k in computed
    ):
        return None  # the flag of a check is folded after each step
    if not beside(kernel, computed, kernel.inner[-1].var, apart=NEAR):
        return None
    calls = any(isinstance(v := kernel.values[k], Compute) and v.op in CALLS for k in computed)
    fit = (
        [w for w in WIDTHS if least <= w <= size < (WITH_CALLS if calls else LONG)]
        if kernel.repeatable
        else []
    )
    return next((w for w in fit if w * STEPS_OF_REST <= size), fit[-1] if fit else None)


def beside(kernel: Kernel, computed: Iterable[int], var: Var, *, apart: int = 1) -> bool:
    """Whether loads at neighbouring points of the loop over ``var`` have elements at most ``apart``, or read at places.

    GCC reads the last vector of elements with gaps one by one, as it might reach over the end: a loop of one vector is none.
    """
    loads = (v for k in computed if isinstance(v := kernel.values[k], Load))
    steps = (v.index.coefficient(var) for v in loads)
    return all(step is not None and step.as_int() in range(-1, apart + 1) for step in steps)


def _bytes(kernel: Kernel, buffer: str) -> int:
    """Return the bytes of an element of ``buffer``."""
    return next(int(ref.dtype.itemsize) for ref in kernel.buffers if ref.name == buffer)
