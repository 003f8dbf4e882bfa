"""Lower batch and group normalisation: statistics over leading dimensions, and running statistics.

``native_batch_norm`` updates its running statistics in place, which its schema does not declare. The rule
returns the new statistics as ``Updates``. Elements are centred before they are scaled, unlike in eager.
"""

# ruff: noqa: PLR0917 - a rule has its operator's signature
from __future__ import annotations

from collections.abc import Sequence

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import ZERO, Expr, as_expr, floordiv, product
from fxstack_inductor.ir.nodes import Body, Node, value_dtype
from fxstack_inductor.lower.context import Context, cast, number, read
from fxstack_inductor.lower.elementwise.pointwise import call, like
from fxstack_inductor.lower.indexing.views import reshape_coords
from fxstack_inductor.lower.reductions.normalisation import apply, convert_dtype, require_floating
from fxstack_inductor.lower.reductions.reductions import drop, moments, number_of
from fxstack_inductor.lower.registry import Registry, Updates

registry = Registry()
rule = registry.rule


def _requirements(x: Node) -> torch.dtype:
    """Raise ``NotLowered`` for unsupported inputs; return the dtype to compute in."""
    dtype = require_floating(x)
    if len(x.shape) < 2 or any(size == 0 for size in x.shape):
        raise NotLowered("normalisation of nothing")
    return dtype


def _empty(ctx: Context, dtype: torch.dtype) -> Node:
    """Return a tensor without elements, for results that eager leaves empty."""
    return ctx.pointwise([ZERO], dtype, lambda _: number(0, value_dtype(dtype)))


def _scaled(ctx: Context, x: Node, mean: Node, rstd: Node, weight: Node | None, bias: Node | None) -> Node:
    """Make ``(x - mean) * (rstd * weight) + bias``; all tensors but ``x`` have one element per channel."""
    dtype = value_dtype(x.dtype)

    def body(index: Sequence[Expr]) -> Body:
        """Return the normalised element."""
        at = (index[1],)

        def channel(node: Node) -> Body:
            return cast(read(node, at), dtype)

        scale = channel(rstd)
        if weight is not None:
            scale = call("mul", scale, channel(weight))
        centred = call("sub", cast(read(x, index), dtype), channel(mean))
        result = call("mul", centred, scale)
        return result if bias is None else call("add", result, channel(bias))

    return ctx.pointwise(x.shape, x.dtype, body)


def _inverse_deviation(ctx: Context, variance: Node, eps: float) -> Node:
    """Return ``1 / sqrt(variance + eps)``."""
    dtype = value_dtype(variance.dtype)
    return apply(ctx, dtype, dtype, lambda v: call("rsqrt", call("add", v, like(v, eps))), variance)


class _Statistics:
    """Per-channel batch statistics: ``mean``, ``squares`` (sum of squared deviations), ``count``."""

    def __init__(self, ctx: Context, x: Node) -> None:
        self.ctx = ctx
        self.dtype = value_dtype(x.dtype)
        dims = tuple(k for k in range(len(x.shape)) if k != 1)
        mean, squares = moments(ctx, x, dims)
        self.mean, self.squares = drop(ctx, mean, dims), drop(ctx, squares, dims)
        self.count = product(x.shape[k] for k in dims)

    def rstd(self, eps: float) -> Node:
        """Return the reciprocal standard deviation per channel."""
        count = number_of(self.count, self.dtype)
        variance = apply(self.ctx, self.dtype, self.dtype, lambda s: call("div", s, count), self.squares)
        return _inverse_deviation(self.ctx, variance, eps)

    def updated(self, running: Node, momentum: float, *, variance: bool) -> Node:
        """Return the running mean or (unbiased) variance after this batch."""
        value = self.squares if variance else self.mean
        freedom = number_of(self.count - 1, self.dtype)

        def body(old: Body, new: Body) -> Body:
            """Return the running value after this batch."""
            new = call("div", new, freedom) if variance else new
            return call(
                "add", call("mul", like(new, momentum), new), call("mul", like(old, 1 - momentum), old)
            )

        return apply(self.ctx, self.dtype, running.dtype, body, running, value)


def _train(
    ctx: Context, x: Node, weight: Node | None, bias: Node | None, eps: float
) -> tuple[_Statistics, tuple[Node, Node, Node]]:
    """Normalise ``x`` by the statistics of the batch; return the statistics, and the output with the saved mean and rstd."""
    stored = ctx.value[1].dtype
    statistics = _Statistics(ctx, x)
    rstd = statistics.rstd(eps)
    out = _scaled(ctx, x, statistics.mean, rstd, weight, bias)
    return statistics, (out, convert_dtype(ctx, statistics.mean, stored), convert_dtype(ctx, rstd, stored))


@rule("native_batch_norm.default")
def batch_norm(
    ctx: Context,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    running_mean: Node | None,
    running_var: Node | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Updates | tuple[Node, ...]:
    """Lower a batch norm; in training, also return the new running statistics as ``Updates``."""
    _requirements(x)
    if not training:
        if running_mean is None or running_var is None:
            raise NotLowered("evaluation without statistics")
        return batch_norm_evaluation(ctx, x, weight, bias, running_mean, running_var, momentum, eps)
    statistics, results = _train(ctx, x, weight, bias, eps)
    changes = tuple(
        (position, statistics.updated(running, momentum, variance=position == 4))
        for position, running in ((3, running_mean), (4, running_var))
        if running is not None
    )
    return Updates(results, changes) if changes else results


@rule("_native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    ctx: Context, x: Node, weight: Node | None, bias: Node | None, training: bool, momentum: float, eps: float
) -> Updates | tuple[Node, ...]:
    """Lower a batch norm without running statistics."""
    return batch_norm(ctx, x, weight, bias, None, None, training, momentum, eps)


@rule("_native_batch_norm_legit_functional.default")
def functional_batch_norm(
    ctx: Context,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    running_mean: Node,
    running_var: Node,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Node, ...]:
    """Lower a training batch norm that returns the new running statistics as results."""
    _requirements(x)
    if not training:
        raise NotLowered("evaluation")
    if any(
        new.dtype != old.dtype for new, old in zip(ctx.value[3:], (running_mean, running_var), strict=True)
    ):
        raise NotLowered("statistics of another dtype")
    statistics, results = _train(ctx, x, weight, bias, eps)
    return (
        *results,
        statistics.updated(running_mean, momentum, variance=False),
        statistics.updated(running_var, momentum, variance=True),
    )


@rule("_native_batch_norm_legit_no_training.default")
def batch_norm_evaluation(
    ctx: Context,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    running_mean: Node,
    running_var: Node,
    momentum: float,  # noqa: ARG001
    eps: float,
) -> tuple[Node, ...]:
    """Lower a batch norm by its running statistics. On a GPU, eager returns these, too; on the CPU, empty tensors."""
    dtype = _requirements(x)
    variance = apply(ctx, dtype, dtype, lambda v: v, running_var)
    rstd = _inverse_deviation(ctx, variance, eps)
    out = _scaled(ctx, x, running_mean, rstd, weight, bias)
    saved = zip(ctx.value[1:], (running_mean, rstd), strict=True)
    return out, *(_saved(ctx, fake, node) for fake, node in saved)


def _saved(ctx: Context, fake: torch.Tensor, node: Node) -> Node:
    """Return a new tensor with the elements of ``node``, or an empty one where ``fake`` is empty."""
    if isinstance(fake.shape[0], int) and fake.shape[0] == 0:
        return _empty(ctx, fake.dtype)
    return apply(ctx, value_dtype(fake.dtype), fake.dtype, lambda a: a, node)


@rule("native_group_norm.default")
def group_norm(
    ctx: Context,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    batch: Expr | int,
    channels: Expr | int,
    points: Expr | int,
    group: int,
    eps: float,
) -> tuple[Node, Node, Node]:
    """Lower a group norm, as reductions over the channels and points of a group."""
    dtype = _requirements(x)
    n, c, hw = as_expr(batch), as_expr(channels), as_expr(points)
    shape = (n, as_expr(group), floordiv(c, group), hw)
    parts = ctx.view(x, shape, lambda index: reshape_coords(x.shape, shape, index))
    center, squares = moments(ctx, parts, (2, 3))
    count = number_of(shape[2] * hw, dtype)
    variance = apply(ctx, dtype, dtype, lambda s: call("div", s, count), squares)
    rstd = _inverse_deviation(ctx, variance, eps)

    def body(index: Sequence[Expr]) -> Body:
        """Return the normalised element."""
        at = (index[0], index[1], ZERO, ZERO)
        channel = (index[1] * shape[2] + index[2],)
        scale, mean = read(rstd, at), read(center, at)
        if weight is not None:
            scale = call("mul", scale, cast(read(weight, channel), dtype))
        centred = call("sub", cast(read(parts, index), dtype), mean)
        result = call("mul", centred, scale)
        if bias is None:
            return result
        return call("add", result, cast(read(bias, channel), dtype))

    normal = ctx.pointwise(shape, x.dtype, body)
    out = ctx.view(normal, x.shape, lambda index: reshape_coords(shape, x.shape, index))
    stored = ctx.value[1].dtype
    mean = convert_dtype(ctx, drop(ctx, center, (2, 3)), stored)
    return out, mean, convert_dtype(ctx, drop(ctx, rstd, (2, 3)), stored)
