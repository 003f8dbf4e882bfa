"""Triton text of loop variables as digits of a point's number, and of addresses that run along several loops as one.

``p0 * 49 + p1`` with ``p0 = x // 49`` and ``p1 = x % 49`` is ``x``. Triton does not see this: it would load element by element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from fxstack_inductor.codegen.index_text import triton_index
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ONE, ZERO, Expr, Var, of_atom, product
from fxstack_inductor.ir.kernel import Kernel, Load, Loop


def digits(axis: str, loops: Sequence[Loop]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each variable of ``loops``, as a digit of the point number ``axis``."""
    for position, loop in enumerate(loops):
        below = product(part.extent for part in loops[position + 1 :])
        text = axis if below == 1 else f"({axis} // ({triton_index(below)}))"
        if position:
            text = f"{text} % ({triton_index(loop.extent)})"
        yield loop.var.name, text


class Runs:
    """The runs of loops along which an address of ``kernel`` moves as along one loop."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._axes = {"x": kernel.outer, "r": kernel.inner}

    def variables(self, axis: str) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each variable that addresses need beside the digits; a template's axes need none."""
        loops = self._axes.get(axis, ())
        for first in range(1, len(loops) - 1):
            if _name(axis, first) in self._used:
                extent = product(loop.extent for loop in loops[first:])
                yield _name(axis, first), f"{axis} % ({triton_index(extent)})"

    def address(self, index: Expr) -> Expr:
        """Return ``index`` with one variable in place of the loops that it moves along as one, up to the last loop."""
        for axis, loops in self._axes.items():
            for first in range(len(loops) - 1):
                last = index.coefficient(loops[-1].var)
                if last is not None and last.terms and _is_run(index, loops[first:]):
                    whole = Var(
                        _name(axis, first), VarKind.LOOP, product(loop.extent for loop in loops[first:])
                    )
                    index -= sum(
                        (of_atom(p.var) * (index.coefficient(p.var) or ONE) for p in loops[first:]), ZERO
                    )
                    index += of_atom(whole) * last
                    break
        return index

    @cached_property
    def _used(self) -> frozenset[str]:
        indices = [v.index for v in self._kernel.values if isinstance(v, Load)]
        indices += [store.index for store in self._kernel.stores]
        return frozenset(var.name for index in indices for var in self.address(index).variables)


def _name(axis: str, first: int) -> str:
    """Return the name of the run of the loops of ``axis`` from ``first`` on."""
    return f"{axis}from{first}" if first else axis


def _is_run(index: Expr, loops: Sequence[Loop]) -> bool:
    steps = [index.coefficient(loop.var) for loop in loops]
    return all(
        high is not None and low is not None and high == low * loop.extent
        for high, low, loop in zip(steps, steps[1:], loops[1:], strict=False)
    )
