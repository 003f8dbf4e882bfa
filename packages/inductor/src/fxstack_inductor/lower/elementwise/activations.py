"""Activation functions and their gradients."""

# ruff: noqa: ARG001 - a rule has its operator's signature
from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.nodes import Body, Call, Node
from fxstack_inductor.lower.context import Context
from fxstack_inductor.lower.elementwise.pointwise import BOOL, call, elementwise, fold, like
from fxstack_inductor.lower.promotion import promote
from fxstack_inductor.lower.registry import Registry

registry = Registry()
rule = registry.rule


def mul(*factors: Body) -> Body:
    """Return the product of ``factors``."""
    return fold("mul", factors)


def add(a: Body, b: Body) -> Body:
    return call("add", a, b)


def sub(a: Body, b: Body) -> Body:
    return call("sub", a, b)


def select(mask: Body, a: Body, b: Body) -> Body:
    """Return ``a`` where ``mask`` is true, else ``b``."""
    return Call("where", (mask, a, b), a.dtype)


def compare(op: str, a: Body, b: Body) -> Body:
    """Return the boolean result of comparison ``op``."""
    return call(op, a, b, dtype=BOOL)


def floating(ctx: Context, values: tuple[Node, ...], make: Callable[..., Body]) -> Node:
    """Apply ``make`` elementwise in the promoted dtype, which must be floating point."""
    dtype = promote(*values)
    if not dtype.is_floating_point:
        raise NotLowered("an activation of integers")
    return elementwise(ctx, values, dtype, dtype, make)


@rule("gelu.default")
def gelu(ctx: Context, x: Node, *, approximate: str = "none") -> Node:
    """Lower gelu: by ``erf``, or by ``tanh`` as an approximation."""
    return floating(ctx, (x,), _gelu_tanh if approximate == "tanh" else _gelu_erf)


def _gelu_erf(x: Body) -> Body:
    """Return ``x / 2 * (1 + erf(x / sqrt(2)))``."""
    half, one = like(x, 0.5), like(x, 1)
    return mul(mul(x, half), add(one, call("erf", mul(x, like(x, sqrt(0.5))))))


def _tanh_inner(x: Body) -> Body:
    """Return the argument of ``tanh`` in the approximation of gelu."""
    cube = mul(mul(x, x), x)
    return mul(like(x, sqrt(2 / pi)), add(x, mul(like(x, 0.044715), cube)))


def _gelu_tanh(x: Body) -> Body:
    """Return the approximation of gelu by ``tanh``."""
    return mul(mul(like(x, 0.5), x), add(like(x, 1), call("tanh", _tanh_inner(x))))


@rule("gelu_backward.default")
def gelu_backward(ctx: Context, grad: Node, x: Node, *, approximate: str = "none") -> Node:
    make = _gelu_tanh_backward if approximate == "tanh" else _gelu_erf_backward
    return floating(ctx, (grad, x), make)


def _gelu_erf_backward(grad: Body, x: Body) -> Body:
    """Return ``grad * (P(x) + x * p(x))``, with distribution function P and density p of the normal distribution."""
    cdf = mul(like(x, 0.5), add(like(x, 1), call("erf", mul(x, like(x, sqrt(0.5))))))
    pdf = mul(like(x, 1 / sqrt(2 * pi)), call("exp", mul(mul(x, x), like(x, -0.5))))
    return mul(grad, add(cdf, mul(x, pdf)))


def _gelu_tanh_backward(grad: Body, x: Body) -> Body:
    """Return the gradient of the approximation of gelu by ``tanh``."""
    half, one = like(x, 0.5), like(x, 1)
    tanh = call("tanh", _tanh_inner(x))
    left = mul(half, add(one, tanh))
    derivative = mul(like(x, sqrt(2 / pi)), add(one, mul(like(x, 3 * 0.044715), mul(x, x))))
    right = mul(mul(half, x), mul(sub(one, mul(tanh, tanh)), derivative))
    return mul(grad, add(left, right))


def _silu(x: Body) -> Body:
    """Return ``x * sigmoid(x)`` as eager computes it, by a division."""
    return call("div", x, add(like(x, 1), call("exp", call("neg", x))))


def _silu_backward(grad: Body, x: Body) -> Body:
    s, one = call("sigmoid", x), like(x, 1)
    return mul(grad, mul(s, add(one, mul(x, sub(one, s)))))


def _clamped6(a: Body) -> Body:
    """Return ``a + 3`` between 0 and 6."""
    shifted = add(a, like(a, 3))
    return call("minimum", call("maximum", shifted, like(a, 0)), like(a, 6))


def _hardsigmoid_backward(grad: Body, x: Body) -> Body:
    """Return the gradient with eager's constant 1/6, which is rounded to float32 for float64 as well."""
    sixth = torch.tensor(1 / 6, dtype=torch.float32).item()
    inside = call("bitwise_and", compare("gt", x, like(x, -3)), compare("lt", x, like(x, 3)))
    return select(inside, mul(grad, like(grad, sixth)), like(grad, 0))


FUNCTIONS: dict[str, Callable[..., Body]] = {
    "silu": _silu,
    "silu_backward": _silu_backward,
    "sigmoid_backward": lambda g, y: mul(mul(g, sub(like(y, 1), y)), y),
    "tanh_backward": lambda g, y: mul(g, sub(like(y, 1), mul(y, y))),
    "hardsigmoid": lambda x: call("div", _clamped6(x), like(x, 6)),
    "hardsigmoid_backward": _hardsigmoid_backward,
    "hardswish": lambda x: call("div", mul(x, _clamped6(x)), like(x, 6)),
}
"""Activations and gradients without parameters, by operator name."""


def _without_parameters(make: Callable[..., Body]) -> Callable[..., Node]:
    """Return the rule of a function of tensors alone."""
    return lambda ctx, *values: floating(ctx, values, make)


for _name, _make in FUNCTIONS.items():
    registry.add(f"{_name}.default", _without_parameters(_make))
del _name, _make


@rule("threshold_backward.default")
def threshold_backward(ctx: Context, grad: Node, x: Node, threshold: float) -> Node:
    """Lower the gradient: ``grad`` where ``x`` is above ``threshold``, else 0."""
    dtype = promote(grad, x)

    def body(g: Body, a: Body) -> Body:
        # As in eager, the gradient passes where ``x`` is NaN.
        return select(compare("le", a, like(a, threshold)), like(g, 0), g)

    return elementwise(ctx, (grad, x), dtype, dtype, body)


@rule("threshold.default")
def threshold(ctx: Context, x: Node, threshold: float, value: float) -> Node:
    """Lower ``threshold``: ``x`` where it is above ``threshold``, else ``value``."""
    return elementwise(
        ctx, (x,), x.dtype, x.dtype, lambda a: select(compare("le", a, like(a, threshold)), like(a, value), a)
    )


@rule("leaky_relu.default")
def leaky_relu(ctx: Context, x: Node, negative_slope: float = 0.01) -> Node:
    """Lower ``leaky_relu``: a positive ``x`` stays, others are scaled."""
    return floating(
        ctx, (x,), lambda a: select(compare("gt", a, like(a, 0)), a, mul(a, like(a, negative_slope)))
    )


@rule("leaky_relu_backward.default")
def leaky_relu_backward(
    ctx: Context, grad: Node, x: Node, negative_slope: float, self_is_result: bool
) -> Node:
    """Lower the gradient. It needs only the sign of ``x``, and result and input of a leaky relu have the same sign."""

    def body(g: Body, a: Body) -> Body:
        return select(compare("gt", a, like(a, 0)), g, mul(g, like(a, negative_slope)))

    return floating(ctx, (grad, x), body)


@rule("hardtanh.default")
def hardtanh(ctx: Context, x: Node, min_val: float = -1, max_val: float = 1) -> Node:
    """Lower ``hardtanh``: ``x`` between two bounds; NaN stays NaN."""
    return floating(
        ctx, (x,), lambda a: call("minimum", like(a, max_val), call("maximum", like(a, min_val), a))
    )


@rule("hardtanh_backward.default")
def hardtanh_backward(ctx: Context, grad: Node, x: Node, min_val: float, max_val: float) -> Node:
    """Lower the gradient, which is 0 at the bounds and outside."""

    def body(g: Body, a: Body) -> Body:
        outside = call("bitwise_or", compare("le", a, like(a, min_val)), compare("ge", a, like(a, max_val)))
        return select(outside, like(g, 0), g)

    return floating(ctx, (grad, x), body)


@rule("elu.default")
def elu(ctx: Context, x: Node, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Node:
    """Lower ``elu``: a positive ``x`` is scaled, others become a scaled exponential minus 1."""

    def body(a: Body) -> Body:
        """Return the scaled element."""
        negative = mul(call("expm1", mul(a, like(a, input_scale))), like(a, alpha * scale))
        return select(compare("le", a, like(a, 0)), negative, mul(a, like(a, scale)))

    return floating(ctx, (x,), body)


@rule("softplus.default")
def softplus(ctx: Context, x: Node, beta: float = 1, threshold: float = 20) -> Node:
    """Lower ``softplus``: ``log(1 + exp(beta * x)) / beta``, and ``x`` above ``threshold``."""

    def body(a: Body) -> Body:
        """Return the element, unchanged above the threshold."""
        scaled = mul(a, like(a, beta))
        soft = call("div", call("log1p", call("exp", scaled)), like(a, beta))
        return select(compare("gt", scaled, like(a, threshold)), a, soft)

    return floating(ctx, (x,), body)


@rule("native_dropout_backward.default")
def native_dropout_backward(ctx: Context, grad: Node, mask: Node, scale: float) -> Node:
    """Lower the gradient of dropout: ``grad`` times the boolean mask times ``scale``."""
    dtype = grad.dtype
    if mask.dtype is not torch.bool or not dtype.is_floating_point:
        raise NotLowered("dropout gradient without a boolean mask")
    return elementwise(ctx, (grad, mask), dtype, dtype, lambda g, m: mul(mul(g, m), like(g, scale)))
