"""Lower elementwise operators."""

# ruff: noqa: ARG001 - a rule has its operator's signature
from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import FLOAT8_DTYPES, Body, Call, Const, Node, value_dtype
from fxstack_inductor.ir.scalar_ops import FLOAT_UNARY
from fxstack_inductor.lower.context import (
    Context,
    HostScalar,
    TensorOrScalar,
    broadcast_shapes,
    cast,
    constant,
    operand,
    read_broadcast,
    round_to,
)
from fxstack_inductor.lower.promotion import float_dtype, promote
from fxstack_inductor.lower.registry import Registry

registry = Registry()
rule = registry.rule
BOOL = torch.bool


def elementwise(
    ctx: Context,
    values: tuple[TensorOrScalar, ...],
    compute: torch.dtype,
    result: torch.dtype,
    make: Callable[..., Body],
    *,
    precise: Collection[int] = (),
) -> Node:
    """Broadcast ``values``, convert each to ``compute``, and apply ``make`` in the register dtype.

    Numbers and 0-d tensors at the positions ``precise`` are not rounded to half precision: eager's
    multiplication and division use such operands in float32.
    """
    for value in values:
        if isinstance(value, Node) and value.dtype.is_complex:
            raise NotLowered("complex numbers")
    shape = broadcast_shapes([value.shape for value in values if isinstance(value, Node)])

    def dtype(position: int, value: TensorOrScalar) -> torch.dtype:
        small = not isinstance(value, Node) or not value.shape
        return value_dtype(compute) if small and position in precise else compute

    dtypes = [dtype(position, value) for position, value in enumerate(values)]
    return ctx.pointwise(
        shape,
        result,
        lambda index: make(*(operand(v, index, d) for v, d in zip(values, dtypes, strict=True))),
    )


def call(op: str, *args: Body, dtype: torch.dtype | None = None) -> Call:
    """Return the operation ``op`` with the dtype of its first argument, unless ``dtype`` is given."""
    return Call(op, args, args[0].dtype if dtype is None else dtype)


def like(body: Body, value: float | HostScalar) -> Body:
    """Return the number ``value`` in the dtype of ``body``."""
    return constant(value, body.dtype)


def fold(op: str, values: Iterable[Body]) -> Body:
    """Return ``op`` of all values, from left to right."""
    return functools.reduce(lambda a, b: call(op, a, b), values)


@rule("copy.default")
def copy(ctx: Context, x: Node, source: Node, non_blocking: bool = False) -> Node:
    """Return the contents of ``x`` after ``x.copy_(source)``."""
    dtype = value_dtype(x.dtype)
    return ctx.pointwise(x.shape, x.dtype, lambda index: read_broadcast(source, index, dtype))


# --- unary --------------------------------------------------------------------------------------------


def _same(a: Body) -> Body:
    """Return the element itself, for copies."""
    return a


def _is_infinite(a: Body) -> Body:
    """Return whether an element is infinite; integers are not."""
    if not a.dtype.is_floating_point:
        return Const(False, BOOL)
    return call("eq", call("abs", a), like(a, float("inf")), dtype=BOOL)


def truth(a: Body) -> Body:
    """Return whether ``a`` is not zero."""
    return a if a.dtype is BOOL else call("ne", a, like(a, 0), dtype=BOOL)


def _operation(op: str) -> Callable[[Body], Body]:
    """Return the operation ``op`` of one element."""
    return lambda a: call(op, a)


def _rounding(op: str) -> Callable[[Body], Body]:
    """Return an operation that rounds floats and keeps integers."""
    return lambda a: call(op, a) if a.dtype.is_floating_point else a


UNARY: dict[str, Callable[[Body], Body]] = {
    **{op: _operation(op) for op in ("neg", "bitwise_not", "relu")},
    **{op: _rounding(op) for op in ("floor", "ceil", "trunc", "round")},
    **dict.fromkeys(("clone", "alias_copy", "detach_copy", "lift_fresh_copy"), _same),
    **dict.fromkeys(("sign", "sgn"), lambda a: a if a.dtype is BOOL else call("sign", a)),
    "abs": lambda a: a if a.dtype in {BOOL, torch.uint8} else call("abs", a),
    "square": lambda a: call("mul", a, a),
}
"""By operator name: functions of one tensor whose result has the dtype of the tensor."""
TESTS: dict[str, Callable[[Body], Body]] = {
    "isnan": lambda a: call("ne", a, a, dtype=BOOL),
    "isinf": _is_infinite,
    "logical_not": lambda a: call("eq", a, like(a, 0), dtype=BOOL),
}
"""By operator name: functions of one tensor with a boolean result."""


def _unary(
    make: Callable[[Body], Body], *, floating: bool = False, result: torch.dtype | None = None
) -> Callable[..., Node]:
    """Return the rule of a function of one tensor; ``floating`` makes integers floats, as eager does."""

    def lower(ctx: Context, x: Node, *, memory_format: object = None) -> Node:
        """Lower a function of one tensor."""
        dtype = float_dtype(promote(x)) if floating else promote(x)
        return elementwise(ctx, (x,), dtype, result or dtype, make)

    return lower


for _name in FLOAT_UNARY:
    registry.add(f"{_name}.default", _unary(_operation(_name), floating=True))
for _name, _make in UNARY.items():
    registry.add(f"{_name}.default", _unary(_make))
for _name, _make in TESTS.items():
    registry.add(f"{_name}.default", _unary(_make, result=BOOL))
del _name, _make


@rule("_to_copy.default")
def to_copy(
    ctx: Context,
    x: Node | float,
    *,
    dtype: torch.dtype | None = None,
    layout: object = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: object = None,
) -> Node:
    """Lower a conversion on one device; a copy to another device stays in ATen."""
    if isinstance(x, (bool, int, float)):  # from vmap: a number beside a batch
        return ctx.pointwise((), ctx.value.dtype, lambda _: constant(x, value_dtype(ctx.value.dtype)))
    if device is not None and device != x.device:
        raise NotLowered(f"copy from {x.device} to {device}")
    return convert(ctx, x, x.dtype if dtype is None else dtype)


@rule("prims::convert_element_type.default")
def convert(ctx: Context, x: Node, dtype: torch.dtype) -> Node:
    """Lower a conversion; values are rounded to half precision at once, as in eager."""
    kernel_dtypes = REGISTER_DTYPES
    if ctx.target.float8:
        kernel_dtypes = kernel_dtypes.union(FLOAT8_DTYPES)
    if dtype not in kernel_dtypes or x.dtype not in kernel_dtypes:
        raise NotLowered(f"conversion from {x.dtype} to {dtype}")

    def body(a: Body) -> Body:
        """Return the converted element."""
        converted = cast(a, value_dtype(dtype))
        rounds = dtype != value_dtype(dtype) and x.dtype != dtype
        return round_to(converted, dtype) if rounds else converted

    return elementwise(ctx, (x,), x.dtype, dtype, body)


REGISTER_DTYPES = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    }
)
"""The dtypes that kernels handle; nodes of any other dtype are left to ATen."""


# --- binary -------------------------------------------------------------------------------------------


def _binary(op: str, *, floating: bool | None = None) -> Callable[..., Node]:
    """Return the rule of ``op``. ``floating``: True makes integers floats, False keeps them, None declines them."""

    def lower(ctx: Context, x: TensorOrScalar, y: TensorOrScalar) -> Node:
        """Lower an operation of two operands."""
        dtype = promote(x, y)
        if floating is None and not dtype.is_floating_point:
            raise NotLowered(f"{op} of integers")
        if floating:
            dtype = float_dtype(dtype)
        precise = (1,) if op == "mul" else ()
        return elementwise(ctx, (x, y), dtype, dtype, lambda a, b: call(op, a, b), precise=precise)

    return lower


for _floating, _names in (
    (False, "mul maximum minimum bitwise_and bitwise_or bitwise_xor"),
    (None, "fmax fmin hypot fmod remainder"),
    (True, "atan2 copysign"),
):
    for _name in _names.split():
        for _overload in ("Tensor", "Scalar", "default", "Tensor_Scalar", "Scalar_Tensor"):
            registry.add(f"{_name}.{_overload}", _binary(_name, floating=_floating))
del _name, _names, _floating, _overload


def _sum(sign: str, flip: bool = False) -> Callable[..., Node]:
    """Return the rule of an addition or subtraction with a factor ``alpha``; ``flip`` swaps the operands."""

    def lower(ctx: Context, x: TensorOrScalar, y: TensorOrScalar, alpha: Any = 1) -> Node:
        """Lower ``x + alpha * y`` or ``x - alpha * y``."""
        left, right = (y, x) if flip else (x, y)
        dtype = promote(x, y)
        if isinstance(alpha, Expr):
            raise NotLowered("symbolic alpha")
        if dtype is BOOL and sign == "sub":
            raise NotLowered("subtraction of booleans")

        def scaled(a: Body) -> Body:
            """Return the second operand times ``alpha``, which is rounded as in eager."""
            if alpha == 1:
                return a
            factor = like(a, alpha)
            return call("mul", a, factor if dtype == a.dtype else round_to(factor, dtype))

        def body(a: Body, b: Body) -> Body:
            return call(sign, a, scaled(b))

        return elementwise(ctx, (left, right), dtype, dtype, body)

    return lower


for _overload in ("Tensor", "Scalar"):
    registry.add(f"add.{_overload}", _sum("add"))
    registry.add(f"sub.{_overload}", _sum("sub"))
    registry.add(f"rsub.{_overload}", _sum("sub", flip=True))
del _overload


@rule("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(ctx: Context, x: TensorOrScalar, y: TensorOrScalar) -> Node:
    """Lower a true division, which makes integers floats."""
    dtype = float_dtype(promote(x, y))
    return elementwise(ctx, (x, y), dtype, dtype, lambda a, b: call("div", a, b), precise=(1,))


@rule("div.Tensor_mode", "div.Scalar_mode")
def div_mode(ctx: Context, x: TensorOrScalar, y: TensorOrScalar, *, rounding_mode: str | None = None) -> Node:
    """Lower a division whose quotient is truncated or floored."""
    if rounding_mode is None:
        return div(ctx, x, y)
    dtype = promote(x, y)
    if not dtype.is_floating_point:
        _require_nonzero(y)
    vectors = isinstance(y, Node) and y.shape
    if rounding_mode == "trunc" and dtype != value_dtype(dtype) and vectors:
        # Eager rounds the quotient, possibly up to a whole number, before truncating; not for 0-d divisors.
        return elementwise(
            ctx, (x, y), dtype, dtype, lambda a, b: call("trunc", round_to(call("div", a, b), dtype))
        )
    op = {"floor": "floordiv", "trunc": "truncdiv"}[rounding_mode]
    return elementwise(ctx, (x, y), dtype, dtype, lambda a, b: call(op, a, b), precise=(1,))


def _require_nonzero(y: TensorOrScalar) -> None:
    """Decline an integer divisor that may be 0 or -1: eager raises for 0, and C traps."""
    if not isinstance(y, (int, float)) or y in (0, -1):
        raise NotLowered("integer division by a tensor, 0 or -1")


@rule("floor_divide.default", "floor_divide.Scalar")
def floor_divide(ctx: Context, x: TensorOrScalar, y: TensorOrScalar) -> Node:
    return div_mode(ctx, x, y, rounding_mode="floor")


# --- comparisons and logic ----------------------------------------------------------------------------


def _comparison(op: str) -> Callable[..., Node]:
    """Return the rule of a comparison, whose result is boolean."""

    def lower(ctx: Context, x: TensorOrScalar, y: TensorOrScalar) -> Node:
        return elementwise(ctx, (x, y), promote(x, y), BOOL, lambda a, b: call(op, a, b, dtype=BOOL))

    return lower


def _logical(op: str) -> Callable[..., Node]:
    """Return the rule of a logical operation on the truth of two tensors."""

    def lower(ctx: Context, x: Node, y: Node) -> Node:
        dtype = promote(x, y)
        return elementwise(ctx, (x, y), dtype, BOOL, lambda a, b: call(op, truth(a), truth(b)))

    return lower


for _op in ("eq", "ne", "lt", "le", "gt", "ge"):
    registry.add(f"{_op}.Tensor", _comparison(_op))
    registry.add(f"{_op}.Scalar", _comparison(_op))
for _op in ("and", "or", "xor"):
    registry.add(f"logical_{_op}.default", _logical(f"bitwise_{_op}"))
del _op


@rule("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(ctx: Context, condition: Node, x: TensorOrScalar, y: TensorOrScalar) -> Node:
    """Lower ``where`` in the promoted dtype of ``x`` and ``y``."""
    dtype = promote(x, y)
    values = [v for v in (condition, x, y) if isinstance(v, Node)]
    shape = broadcast_shapes([value.shape for value in values])
    register = value_dtype(dtype)

    def body(index: Any) -> Body:
        """Return the element of ``x`` or ``y``, by the condition."""
        mask = read_broadcast(condition, index, BOOL)
        branches = (operand(x, index, dtype), operand(y, index, dtype))
        return Call("where", (mask, *branches), register)

    return ctx.pointwise(shape, dtype, body)


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(ctx: Context, x: Node, mask: Node, value: TensorOrScalar) -> Node:
    """Lower ``masked_fill``: ``value`` where the mask is true."""
    shape = broadcast_shapes([x.shape, mask.shape])
    register = value_dtype(x.dtype)

    def body(index: Any) -> Body:
        """Return the element of ``x``, or the filler."""
        filler = operand(value, index, x.dtype)
        return Call(
            "where", (read_broadcast(mask, index, BOOL), filler, read_broadcast(x, index, register)), register
        )

    return ctx.pointwise(shape, x.dtype, body)


@rule("clamp.default", "clamp.Tensor")
def clamp(
    ctx: Context, x: Node, min: TensorOrScalar | None = None, max: TensorOrScalar | None = None
) -> Node:
    """Lower ``clamp``; a bound that is None does not limit."""
    dtype = promote(x, *(v for v in (min, max) if v is not None))
    min, max = _in_range(min, dtype, low=True), _in_range(max, dtype, low=False)
    bounds = [v for v in (min, max) if v is not None]
    maximum_of_two = len(bounds) == 1 and isinstance(bounds[0], Node)

    def bounded(op: str, a: Body, bound: Body) -> Body:
        # For zeros of different sign, the second operand wins. As in eager, a single tensor bound is second,
        # else the value.
        return call(op, a, bound) if maximum_of_two else call(op, bound, a)

    def body(a: Body, *bounds: Body) -> Body:
        """Return the element between its bounds."""
        rest = list(bounds)
        if min is not None:
            a = bounded("maximum", a, rest.pop(0))
        return a if max is None else bounded("minimum", a, rest.pop(0))

    return elementwise(ctx, (x, *bounds), dtype, dtype, body)


def _in_range(bound: TensorOrScalar | None, dtype: torch.dtype, *, low: bool) -> TensorOrScalar | None:
    """Return a bound of ``clamp`` that an integer ``dtype`` can represent.

    Eager ignores a lower bound below the range and an upper bound above the range. It raises an error for
    other bounds out of range.
    """
    if bound is None or isinstance(bound, Node) or dtype.is_floating_point or dtype in (BOOL, torch.int64):
        return bound
    if not isinstance(bound, int):
        raise NotLowered("a changing bound of clamp, which eager compares with the range of the dtype")
    limits = torch.iinfo(dtype)
    if bound > limits.max if low else bound < limits.min:
        raise NotLowered("a bound of clamp for which eager raises an error")
    return int(builtins.max(bound, limits.min) if low else builtins.min(bound, limits.max))


@rule("clamp_min.default", "clamp_min.Tensor")
def clamp_min(ctx: Context, x: Node, min: TensorOrScalar) -> Node:
    return clamp(ctx, x, min, None)


@rule("clamp_max.default", "clamp_max.Tensor")
def clamp_max(ctx: Context, x: Node, max: TensorOrScalar) -> Node:
    return clamp(ctx, x, None, max)


def _added(op: str) -> Callable[..., Node]:
    """Return the rule of ``addcmul`` or ``addcdiv``: ``x + value * y op z``."""

    def lower(ctx: Context, x: Node, y: Node, z: Node, *, value: float = 1) -> Node:
        """Lower ``x + value * y op z``."""
        dtype = promote(x, y, z)
        if op == "div" and not dtype.is_floating_point:
            raise NotLowered("addcdiv of integers")

        def body(a: Body, b: Body, c: Body) -> Body:
            scaled = b if value == 1 else call("mul", like(b, value), b)
            return call("add", a, call(op, scaled, c))

        return elementwise(ctx, (x, y, z), dtype, dtype, body)

    return lower


registry.add("addcmul.default", _added("mul"))
registry.add("addcdiv.default", _added("div"))


@rule("lerp.Scalar")
def lerp(ctx: Context, x: Node, y: Node, weight: float | HostScalar) -> Node:
    """Lower ``x + weight * (y - x)``. As in eager, a weight of at least 0.5 counts back from ``y``."""
    dtype = promote(x, y)

    def body(a: Body, b: Body) -> Body:
        """Return the interpolated element."""
        delta, factor = call("sub", b, a), like(a, weight)
        near = call("add", a, call("mul", factor, delta))
        far = call("sub", b, call("mul", delta, call("sub", like(a, 1), factor)))
        if isinstance(weight, HostScalar):
            is_near = call("lt", call("abs", factor), like(a, 0.5), dtype=BOOL)
            return call("where", is_near, near, far, dtype=a.dtype)
        return near if abs(weight) < 0.5 else far

    return elementwise(ctx, (x, y), dtype, dtype, body)
