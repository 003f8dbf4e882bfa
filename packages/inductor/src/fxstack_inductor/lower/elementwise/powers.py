"""Lower powers of floats with eager's shortcuts and eager's rounding of exponents."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Body, Node
from fxstack_inductor.lower.context import Context, TensorOrScalar
from fxstack_inductor.lower.elementwise.pointwise import BOOL, call, elementwise, like
from fxstack_inductor.lower.promotion import promote
from fxstack_inductor.lower.registry import Registry

registry = Registry()
rule = registry.rule


@rule("pow.Tensor_Scalar")
def pow_scalar(ctx: Context, x: Node, exponent: float | Expr) -> Node:
    """Lower a power with a constant exponent; of integers only the square."""
    dtype = promote(x, exponent)
    if isinstance(exponent, Expr):
        raise NotLowered("symbolic exponent")
    if not dtype.is_floating_point:
        if exponent == 2:
            return elementwise(ctx, (x,), dtype, dtype, lambda a: call("mul", a, a))
        raise NotLowered("integer power")
    # For float16 eager calls ``pow`` without shortcuts; shortcuts for roots differ in the sign of zero.
    power = ROOTS.get(float(exponent), _power) if dtype is torch.float16 else _power
    rounded = torch.tensor(float(exponent), dtype=dtype).item()
    return elementwise(ctx, (x,), dtype, dtype, lambda a: power(a, rounded))


def _any_power(a: Body, exponent: float) -> Body:
    """Return ``pow`` without a shortcut."""
    return call("pow", a, like(a, exponent))


def _root(a: Body, _: float) -> Body:
    """Return ``pow(a, 0.5)``. C compilers replace the call by ``sqrt``, which differs at -0.0 and at -inf."""
    root = call("add", call("sqrt", a), like(a, 0.0))
    infinite = call("eq", a, like(a, -math.inf), dtype=BOOL)
    return call("where", infinite, like(a, math.inf), root, dtype=a.dtype)


def _power(a: Body, exponent: float) -> Body:
    """Return eager's special case for ``exponent``, or else ``pow``."""
    shortcut = SHORTCUTS.get(exponent)
    return _any_power(a, exponent) if shortcut is None else shortcut(a)


ROOTS: dict[float, Callable[[Body, float], Body]] = {0.5: _root, -0.5: _any_power}
"""Functions for powers of float16 whose shortcut would differ from ``pow``, by exponent."""
SHORTCUTS: dict[float, Callable[[Body], Body]] = {
    0.0: lambda a: like(a, 1),
    0.5: lambda a: call("sqrt", a),
    1.0: lambda a: a,
    2.0: lambda a: call("mul", a, a),
    3.0: lambda a: call("mul", call("mul", a, a), a),
    -0.5: lambda a: call("rsqrt", a),
    -1.0: lambda a: call("reciprocal", a),
    -2.0: lambda a: call("reciprocal", call("mul", a, a)),
}


@rule("pow.Tensor_Tensor", "pow.Scalar")
def pow_tensor(ctx: Context, x: TensorOrScalar, y: Node) -> Node:
    """Lower a power whose exponent is a tensor."""
    dtype = promote(x, y)
    if not dtype.is_floating_point:
        raise NotLowered("integer power")
    return elementwise(ctx, (x, y), dtype, dtype, lambda a, b: call("pow", a, b))
