"""Triton text of centred reductions (``ir.kernel.CENTRED``): each lane of a tile has a centre of its own.

``tiling.one_pass`` says which centre. The running tiles of the reduction at position ``k`` are ``tk``, for squares the sum ``dk``
of the differences from the first elements, and for squares and differences the first elements ``bk``.
"""

from __future__ import annotations

from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.tiling.one_pass import partner

RUNNING = {"expsum": "t", "squares": "tdb", "differences": "tb"}
"""The letters of the running tiles."""
TYPES = {4: "tl.float32", 8: "tl.float64"}
COUNT = "(rnumel + RBLOCK - 1 - tl.arange(0, RBLOCK)[None, :]) // RBLOCK"
"""The number of elements of each lane."""
PRELUDE = """

@triton.jit
def _add_expsum(total, top, value):
    low = -float("inf")
    factor = tl.where(value == top, 1.0, libdevice.exp(-tl.abs(value - top)))
    return tl.where(value > top, total * factor + 1, total + tl.where(value == low, 0.0, factor))


@triton.jit
def _moved_expsum(total, top, centre):
    return total * libdevice.exp(top - centre)


@triton.jit
def _add_squares(squares, total, first, value, inside, begin):
    first = tl.where(begin, value, first)
    difference = tl.where(inside, value - first, 0.0)
    return squares + difference * difference, total + difference, first


@triton.jit
def _add_differences(total, first, value, inside, begin):
    first = tl.where(begin, value, first)
    return total + tl.where(inside, value - first, 0.0), first


@triton.jit
def _moved_differences(total, first, centre, count):
    return total + count * (first - centre)


@triton.jit
def _moved_squares(squares, total, first, centre, count):
    shift = first - centre
    overflow = (squares == float("inf")) & (tl.abs(centre) < float("inf"))
    return tl.where(overflow, squares, squares + shift * (2 * total + count * shift))
"""
"""Functions that take a tile into the running tiles, and that move a lane's sum to the common centre."""


def step(kernel: Kernel, position: int, new: str) -> str:
    """Return the line that takes the tile ``new`` into the running tiles, before the partner takes it."""
    reduce = kernel.reduction(position)
    if reduce.op == "expsum":
        return f"t{position} = _add_expsum(t{position}, t{partner(kernel, reduce)}, {new})"
    running = ", ".join(f"{name}{position}" for name in RUNNING[reduce.op])
    return f"{running} = _add_{reduce.op}({running}, {new}, xmask & rmask, offset == 0)"


def finish(kernel: Kernel, position: int) -> str:
    """Return the line behind the pass: the sum of the lanes' sums, each moved to the common centre."""
    reduce = kernel.reduction(position)
    centre = f"v{reduce.args[1]}"
    if reduce.op == "expsum":
        moved = f"_moved_expsum(t{position}, t{partner(kernel, reduce)}, {centre})"
    else:
        running = ", ".join(f"{name}{position}" for name in RUNNING[reduce.op])
        moved = f"_moved_{reduce.op}({running}, {centre}, {COUNT})"
    return f"v{position} = tl.sum({moved}, 1)[:, None].to({TYPES[reduce.dtype.itemsize]})"
