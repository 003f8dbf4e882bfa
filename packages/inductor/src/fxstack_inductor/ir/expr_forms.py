"""Compare index expressions by their bounds, and compute the strides of dense tensors."""

from __future__ import annotations

from collections.abc import Sequence

from fxstack_inductor.ir.expr import ONE, Expr, extremum


def decided(op: str, left: Expr, right: Expr) -> bool | None:
    """Return the truth of ``left op right`` (eq, ne, lt, le, gt, ge) if bounds decide it, else None."""
    low, high = (left - right).bounds()
    match op:
        case "lt" | "ge":
            below = high is not None and high < 0
            is_decided = below or (low is not None and low >= 0)
            return below == (op == "lt") if is_decided else None
        case "gt" | "le":
            above = low is not None and low > 0
            is_decided = above or (high is not None and high <= 0)
            return above == (op == "gt") if is_decided else None
        case _:
            apart = (low is not None and low > 0) or (high is not None and high < 0)
            is_decided = apart or low == high == 0
            return apart == (op == "ne") if is_decided else None


def contiguous_strides(shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return the strides of a dense tensor in row-major order."""
    strides: list[Expr] = []
    running = ONE
    for size in reversed(shape):
        strides.append(running)
        if size != 0:
            running = running * (extremum("max", size, 1) if size.as_int() is None else size)
    return tuple(reversed(strides))
