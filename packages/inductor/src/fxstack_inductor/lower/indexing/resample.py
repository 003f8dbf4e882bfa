"""Lower nearest-neighbour interpolation and edge padding to arithmetic on coordinates.

Eager finds the source of an output element as ``floor(position * scale)`` in float32. The lowering divides
the position by a whole factor, if that gives eager's result at every position. Other factors are left to
ATen.
"""

# ruff: noqa: ARG001 - a rule has its operator's signature
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import Expr, as_expr, extremum, floordiv
from fxstack_inductor.ir.nodes import Body, Node
from fxstack_inductor.lower.context import Context, read
from fxstack_inductor.lower.elementwise.pointwise import fold
from fxstack_inductor.lower.registry import Registry

registry = Registry()

MAX_CHECKED_SIZE = 65536
"""Largest output size whose positions are compared with eager's arithmetic; larger sizes are left to ATen."""
MAX_POSITIONS = 25


def _factor(size: Expr, out: Expr, scale: float | None) -> int:
    """Return the whole factor by which a dimension grows, if eager's arithmetic agrees at each position."""
    before, after = size.as_int(), out.as_int()
    if not before or not after or after % before or after > MAX_CHECKED_SIZE:
        raise NotLowered("interpolation by a factor that is not whole")
    factor = after // before
    step = torch.tensor(before / after if scale is None else 1 / scale, dtype=torch.float32)
    source = (torch.arange(after, dtype=torch.float32) * step).floor().long().clamp(max=before - 1)
    if not torch.equal(source, torch.arange(after) // factor):
        raise NotLowered("interpolation that rounds to other neighbours")
    return factor


def _factors(sizes: Sequence[Expr], out: Sequence[Expr], scales: Sequence[float | None]) -> list[int]:
    """Return the whole factor of each interpolated dimension."""
    return [_factor(a, b, s) for a, b, s in zip(sizes, out, scales, strict=True)]


def _nearest(rank: int) -> Callable[..., Node]:
    """Return the rule of nearest-neighbour interpolation over the last ``rank`` dimensions."""

    def lower(ctx: Context, x: Node, output_size: Sequence[int], *scales: float | None) -> Node:
        """Lower the interpolation: each element copies the element at its divided coordinates."""
        all_scales = [*scales, *[None] * (rank - len(scales))]
        factors = _factors(x.shape[-rank:], ctx.sizes()[-rank:], all_scales)

        def body(index: Sequence[Expr]) -> Body:
            near = [floordiv(i, f) for i, f in zip(index[-rank:], factors, strict=True)]
            return read(x, [*index[:-rank], *near])

        return ctx.pointwise(ctx.sizes(), x.dtype, body)

    return lower


def _nearest_backward(rank: int) -> Callable[..., Node]:
    """Return the rule of the gradient: each input element sums the output elements that copied it."""

    def lower(
        ctx: Context, grad: Node, output_size: Sequence[int], input_size: Sequence[int], *scales: float | None
    ) -> Node:
        """Lower the gradient by a sum with one term per copy."""
        all_scales = [*scales, *[None] * (rank - len(scales))]
        shape = ctx.sizes()
        factors = _factors(shape[-rank:], grad.shape[-rank:], all_scales)
        offsets = list(product(*(range(f) for f in factors)))
        if len(offsets) > MAX_POSITIONS or not grad.dtype.is_floating_point:
            raise NotLowered("interpolation by a large factor")

        def value(index: Sequence[Expr], offset: Sequence[int]) -> Body:
            at = [i * f + o for i, f, o in zip(index[-rank:], factors, offset, strict=True)]
            return read(grad, [*index[:-rank], *at])

        def body(index: Sequence[Expr]) -> Body:
            return fold("add", (value(index, offset) for offset in offsets))

        return ctx.pointwise(shape, grad.dtype, body)

    return lower


for _rank in (1, 2, 3):
    registry.add(f"upsample_nearest{_rank}d.default", _nearest(_rank))
    registry.add(f"upsample_nearest{_rank}d_backward.default", _nearest_backward(_rank))
del _rank


# --- padding ------------------------------------------------------------------------------------------


def _reflected(position: Expr, size: Expr) -> Expr:
    """Return the position inside of ``[0, size)`` that mirrors ``position``."""
    inner = extremum("max", position, -position)
    rest = size - 1 - inner
    return size - 1 - extremum("max", rest, -rest)


def _clamped(position: Expr, size: Expr) -> Expr:
    """Return the position inside of ``[0, size)`` that is nearest to ``position``."""
    return extremum("min", extremum("max", position, 0), size - 1)


def _padding(rank: int, source: Callable[[Expr, Expr], Expr]) -> Callable[..., Node]:
    """Return the rule of a padding whose outer elements are the elements at ``source(position, size)``."""

    def lower(ctx: Context, x: Node, padding: Sequence[Expr | int]) -> Node:
        """Lower the padding; an empty tensor stays in ATen."""
        if any(size == 0 for size in x.shape):
            raise NotLowered("padding of nothing")
        before = [as_expr(padding[2 * k]) for k in reversed(range(rank))]

        def body(index: Sequence[Expr]) -> Body:
            """Return the element of ``x`` at the source's coordinates."""
            at = [
                source(i - b, size) for i, b, size in zip(index[-rank:], before, x.shape[-rank:], strict=True)
            ]
            return read(x, [*index[:-rank], *at])

        return ctx.pointwise(ctx.sizes(), x.dtype, body)

    return lower


for _rank in (1, 2, 3):
    registry.add(f"reflection_pad{_rank}d.default", _padding(_rank, _reflected))
    registry.add(f"replication_pad{_rank}d.default", _padding(_rank, _clamped))
del _rank
