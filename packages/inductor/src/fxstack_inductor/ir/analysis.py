"""Loop levels and passes of a kernel's values, shared by the code generators.

``inner``: whether a value changes along the inner loops. ``stage``: the pass over the inner loops in which
the value is available. The stage of a reduction is the highest stage of its operands plus 1:
pass ``s`` computes the reductions of stage ``s + 1``. A centred reduction does not wait for its centre: its stage is
that of its first operand plus 1. The stage of any other value is the highest stage of its operands, or 0 without
operands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from fxstack_inductor.ir.expr import Var
from fxstack_inductor.ir.kernel import (
    CENTRED,
    Kernel,
    Loop,
    Reduce,
    Scan,
    Store,
    index_variables,
    once_per_kernel,
    operands,
)


@dataclass(frozen=True)
class Analysis:
    """The level and the pass of each value of ``kernel``, by position."""

    kernel: Kernel
    inner: tuple[bool, ...]
    """Whether a value changes along the inner loops."""
    stage: tuple[int, ...]
    """The pass over the inner loops in which a value is available."""

    @property
    def last_stage(self) -> int:
        """The highest stage of a stored value or reduction: code generators write passes 0 to this number."""
        roots = [self.stage[s.value] for s in self.kernel.stores]
        reduces = [self.stage[k] for k, v in enumerate(self.kernel.values) if isinstance(v, Reduce)]
        return max([*roots, *reduces], default=0)

    def reduces(self, stage: int) -> list[int]:
        """Return the positions of the reductions that pass ``stage`` computes."""
        return [
            k
            for k, v in enumerate(self.kernel.values)
            if isinstance(v, Reduce) and self.stage[k] == stage + 1
        ]

    def stores(self, stage: int, *, inner: bool) -> list[Store]:
        """Return the stores of pass ``stage`` that run inside (or outside) the inner loops."""
        return [
            s for s in self.kernel.stores if self.stage[s.value] == stage and self.store_inner(s) == inner
        ]

    @cached_property
    def outer(self) -> frozenset[int]:
        """Positions of the values that do not change along the inner loops."""
        return frozenset(k for k, varies in enumerate(self.inner) if not varies)

    def ready(self, stage: int) -> list[int]:
        """Return the positions of values outside the inner loops whose stage is ``stage``.

        Of reductions, these are only the centred ones, which end when their centre is known.
        """
        values = self.kernel.values
        positions = (k for k in sorted(self.outer) if self.stage[k] == stage)
        return [k for k in positions if not isinstance(v := values[k], Reduce) or v.op in CENTRED]

    def roots(self, reduces: Iterable[int], stores: Iterable[Store]) -> list[int]:
        """Return the positions of the values that the given reductions and stores read.

        ``needed`` finds the other values.
        """
        reduced = [k for position in reduces for k in self.kernel.reduction(position).args]
        return reduced + [store.value for store in stores]

    def pass_roots(self, stage: int) -> list[int]:
        """Return the positions of the values that the reductions and stores of pass ``stage`` use."""
        return self.roots(self.reduces(stage), self.stores(stage, inner=True))

    def store_inner(self, store: Store) -> bool:
        """Whether the value or the address of ``store`` changes along the inner loops."""
        return self.inner[store.value] or _varies(store.index.variables, self.kernel)

    def needed(self, roots: Iterable[int], *, stop: frozenset[int] = frozenset()) -> list[int]:
        """Return the positions of ``roots`` and of all values that they need, sorted.

        Operands of values in ``stop`` are left out: these values are available already.
        """
        seen: set[int] = set()
        stack = list(roots)
        while stack:
            position = stack.pop()
            if position in seen:
                continue
            seen.add(position)
            if position not in stop:
                stack.extend(operands(self.kernel.values[position]))
        return sorted(seen)

    def varying(self, loop: Loop) -> set[int]:
        """Return the positions of the values that differ from point to point of ``loop``: no results of reductions over it."""
        varying: set[int] = set()
        for k, value in enumerate(self.kernel.values):
            reduced = isinstance(value, Reduce) and loop in self.kernel.inner
            differs = loop.var in index_variables(value) or varying.intersection(operands(value))
            if differs and not reduced:
                varying.add(k)
        return varying


@once_per_kernel
def analyse(kernel: Kernel) -> Analysis:
    """Return levels and passes of ``kernel``; code generators call it before they write loops."""
    inner: list[bool] = []
    stage: list[int] = []
    for value in kernel.values:
        sources = operands(value)
        value_stage = max((stage[k] for k in sources), default=0)
        if isinstance(value, Reduce):
            inner.append(False)
            stage.append((stage[value.args[0]] if value.op in CENTRED else value_stage) + 1)
            continue
        own_varies = isinstance(value, Scan) or _varies(index_variables(value), kernel)
        inner.append(own_varies or any(inner[k] for k in sources))
        stage.append(value_stage)
    return Analysis(kernel, tuple(inner), tuple(stage))


def _varies(variables: frozenset[Var], kernel: Kernel) -> bool:
    """Whether one of ``variables`` is an inner loop."""
    inner = {loop.var for loop in kernel.inner}
    return not inner.isdisjoint(variables)
