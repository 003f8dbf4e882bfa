"""Find whether a group's accesses run along the inner loops in memory, or across them."""

from __future__ import annotations

from collections.abc import Iterable

from fxstack_inductor.ir.expr import ZERO, Expr
from fxstack_inductor.ir.nodes import Layout
from fxstack_inductor.schedule.fusion.state import Group


def direction(merged: Group, accesses: Iterable[tuple[Layout, tuple[Expr, ...]]]) -> int:
    """Return a number above 0 if most accesses run along the inner loops of ``merged``, below 0 if most run across.

    An access is a tensor's layout and coordinates. Accesses that do not change along the inner or the outer loops, and
    accesses of unknown strides, do not count.
    """
    votes = 0
    inner = merged.inner or frozenset()
    for layout, coords in accesses:
        place = sum((coord * stride for coord, stride in zip(coords, layout.stride, strict=True)), ZERO)
        steps = {var: place.coefficient(var) for var in merged.space}
        known = {
            var: abs(number) for var, step in steps.items() if step is not None and (number := step.as_int())
        }
        if known and inner & known.keys() and known.keys() - inner:
            votes += 1 if min(known, key=lambda var: known[var]) in inner else -1
    return votes
