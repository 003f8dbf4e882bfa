"""Lower softmax and normalisation layers, forward and backward, to reductions and elementwise operations."""

# ruff: noqa: PLR0917 - a rule has its operator's signature
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import product
from fxstack_inductor.ir.nodes import Body, Call, Node, value_dtype
from fxstack_inductor.lower.context import Context
from fxstack_inductor.lower.elementwise.pointwise import call, elementwise, like
from fxstack_inductor.lower.reductions.reductions import moments, normalise_dims, number_of, reduce
from fxstack_inductor.lower.registry import Registry

registry = Registry()
rule = registry.rule


def require_floating(x: Node) -> torch.dtype:
    """Return the dtype to compute in; raise ``NotLowered`` for integers."""
    if not x.dtype.is_floating_point:
        raise NotLowered("normalisation of integers")
    return value_dtype(x.dtype)


def apply(
    ctx: Context, dtype: torch.dtype, result: torch.dtype, make: Callable[..., Body], *xs: Node
) -> Node:
    """Apply ``make`` elementwise in ``dtype``; the result has dtype ``result``."""
    return elementwise(ctx, xs, dtype, result, make)


@rule("_safe_softmax.default")
def safe_softmax(ctx: Context, x: Node, dim: int, dtype: torch.dtype | None = None) -> Node:
    """Lower a softmax that is 0 in every row that is all -inf."""
    if dtype not in (None, x.dtype):
        raise NotLowered("softmax with a conversion")
    register = require_floating(x)
    plain = softmax(ctx, x, dim)
    top = reduce(ctx, x, normalise_dims(x, dim), "max", register, keepdim=True)

    def body(y: Body, m: Body) -> Body:
        # In these rows ``plain`` is NaN: -inf minus the maximum -inf.
        empty = call("eq", m, like(m, float("-inf")), dtype=torch.bool)
        return Call("where", (empty, like(y, 0), y), register)

    return apply(ctx, register, x.dtype, body, plain, top)


def _below_maximum(
    ctx: Context, x: Node, dim: int, make: Callable[[Body], Body]
) -> tuple[Node, tuple[int, ...]]:
    """Return (``make`` of the elements minus their maximum over ``dim``, the reduced dimensions)."""
    dtype = require_floating(x)
    if not x.shape or any(size == 0 for size in x.shape):
        raise NotLowered("softmax of nothing")
    # The exponential of a large element would overflow without this subtraction.
    dims = normalise_dims(x, dim)
    top = reduce(ctx, x, dims, "max", dtype, keepdim=True)
    return apply(ctx, dtype, dtype, lambda a, m: make(call("sub", a, m)), x, top), dims


@rule("_softmax.default")
def softmax(ctx: Context, x: Node, dim: int, half_to_float: bool = False) -> Node:
    """Lower softmax: ``exp(x - maximum)``, divided by the sum of these exponentials."""
    exp, dims = _below_maximum(ctx, x, dim, lambda a: call("exp", a))
    total = reduce(ctx, exp, dims, "sum", exp.dtype, keepdim=True)
    result = torch.float32 if half_to_float else x.dtype
    return apply(ctx, exp.dtype, result, lambda e, s: call("div", e, s), exp, total)


@rule("_log_softmax.default")
def log_softmax(ctx: Context, x: Node, dim: int, half_to_float: bool) -> Node:
    """Lower the logarithm of softmax."""
    shifted, dims = _below_maximum(ctx, x, dim, lambda a: a)
    total = reduce(ctx, shifted, dims, "sum", shifted.dtype, lambda a: call("exp", a), keepdim=True)
    result = torch.float32 if half_to_float else x.dtype
    return apply(ctx, shifted.dtype, result, lambda a, s: call("sub", a, call("log", s)), shifted, total)


def _dot(ctx: Context, a: Node, b: Node, dims: tuple[int, ...], dtype: torch.dtype) -> Node:
    """Return the sum of ``a * b`` over ``dims``, which stay as dimensions of size 1."""
    products = apply(ctx, dtype, dtype, lambda x, y: call("mul", x, y), a, b)
    return reduce(ctx, products, dims, "sum", dtype, keepdim=True)


@rule("_softmax_backward_data.default")
def softmax_backward(ctx: Context, grad: Node, output: Node, dim: int, input_dtype: torch.dtype) -> Node:
    """Lower the gradient of softmax from its output."""
    dtype = require_floating(grad)
    dims = normalise_dims(grad, dim)
    total = _dot(ctx, grad, output, dims, dtype)
    # (g - s) * y, as in eager: g * y - s * y would cancel most digits where the gradient is nearly constant.
    return apply(
        ctx, dtype, input_dtype, lambda g, y, s: call("mul", call("sub", g, s), y), grad, output, total
    )


@rule("_log_softmax_backward_data.default")
def log_softmax_backward(ctx: Context, grad: Node, output: Node, dim: int, input_dtype: torch.dtype) -> Node:
    """Lower the gradient of ``log_softmax`` from its output."""
    dtype = require_floating(grad)
    dims = normalise_dims(grad, dim)
    total = reduce(ctx, grad, dims, "sum", dtype, keepdim=True)
    return apply(
        ctx,
        dtype,
        input_dtype,
        lambda g, y, s: call("sub", g, call("mul", call("exp", y), s)),
        grad,
        output,
        total,
    )


# --- layer normalisation ------------------------------------------------------------------------------


def _inner_dims(x: Node, normalized_shape: Sequence[object]) -> tuple[int, ...]:
    """Return the normalised dimensions, the last ones; raise ``NotLowered`` for an empty tensor."""
    if any(size == 0 for size in x.shape):
        raise NotLowered("normalisation of nothing")
    rank = len(x.shape)
    return tuple(range(rank - len(normalized_shape), rank))


@rule("native_layer_norm.default")
def layer_norm(
    ctx: Context,
    x: Node,
    normalized_shape: Sequence[object],
    weight: Node | None,
    bias: Node | None,
    eps: float,
) -> tuple[Node, Node, Node]:
    """Lower a layer norm: output, mean and reciprocal standard deviation."""
    dtype = require_floating(x)
    dims = _inner_dims(x, normalized_shape)
    stat_dtype = ctx.value[1].dtype
    center, rstd = _statistics(ctx, x, dims, eps)
    affine = [p for p in (weight, bias) if p is not None]

    def body(a: Body, m: Body, r: Body, *parameters: Body) -> Body:
        """Return the normalised element."""
        rest = list(parameters)
        result = call("mul", call("sub", a, m), r)
        if weight is not None:
            result = call("mul", result, rest.pop(0))
        return result if bias is None else call("add", result, rest.pop(0))

    out = apply(ctx, dtype, x.dtype, body, x, center, rstd, *affine)
    return out, convert_dtype(ctx, center, stat_dtype), convert_dtype(ctx, rstd, stat_dtype)


def _statistics(ctx: Context, x: Node, dims: tuple[int, ...], eps: float) -> tuple[Node, Node]:
    """Return the mean and the reciprocal standard deviation over ``dims``."""
    dtype = value_dtype(x.dtype)
    center, squares = moments(ctx, x, dims)
    count = number_of(product(x.shape[k] for k in dims), dtype)

    def body(s: Body) -> Body:
        return call("rsqrt", call("add", call("div", s, count), like(s, eps)))

    return center, apply(ctx, dtype, dtype, body, squares)


def convert_dtype(ctx: Context, x: Node, dtype: torch.dtype) -> Node:
    """Return ``x`` converted to ``dtype``."""
    return x if x.dtype == dtype else apply(ctx, value_dtype(dtype), dtype, lambda a: a, x)


@rule("native_layer_norm_backward.default")
def layer_norm_backward(
    ctx: Context,
    grad: Node,
    x: Node,
    normalized_shape: Sequence[object],
    mean: Node,
    rstd: Node,
    weight: Node | None,
    bias: Node | None,
    output_mask: Sequence[bool],
) -> tuple[Node | None, Node | None, Node | None]:
    """Lower the gradients of input, weight and bias; a gradient that nobody needs is None."""
    dtype = require_floating(x)
    dims = _inner_dims(x, normalized_shape)
    outer = tuple(k for k in range(len(x.shape)) if k not in dims)
    xhat = apply(ctx, dtype, dtype, lambda a, m, r: call("mul", call("sub", a, m), r), x, mean, rstd)
    grad_x = grad_weight = grad_bias = None
    if output_mask[0]:
        grad_x = _layer_norm_input_gradient(ctx, grad, x, dims, xhat, rstd, weight)
    if output_mask[1] and weight is not None:
        scaled = apply(ctx, dtype, dtype, lambda g, h: call("mul", g, h), grad, xhat)
        grad_weight = reduce(ctx, scaled, outer, "sum", weight.dtype)
    if output_mask[2] and bias is not None:
        grad_bias = reduce(ctx, grad, outer, "sum", bias.dtype)
    return grad_x, grad_weight, grad_bias


def _layer_norm_input_gradient(
    ctx: Context, grad: Node, x: Node, dims: tuple[int, ...], xhat: Node, rstd: Node, weight: Node | None
) -> Node:
    """Return the gradient of the input; ``xhat`` is the normalised input."""
    dtype = value_dtype(x.dtype)
    count = number_of(product(x.shape[k] for k in dims), dtype)
    g = grad
    if weight is not None:
        g = apply(ctx, dtype, dtype, lambda a, w: call("mul", a, w), grad, weight)
    g_sum = reduce(ctx, g, dims, "sum", dtype, keepdim=True)
    along_sum = _dot(ctx, g, xhat, dims, dtype)

    def body(a: Body, h: Body, r: Body, s: Body, t: Body) -> Body:
        centered = call("sub", a, call("div", s, count))
        return call("mul", r, call("sub", centered, call("mul", h, call("div", t, count))))

    return apply(ctx, dtype, x.dtype, body, g, xhat, rstd, g_sum, along_sum)
