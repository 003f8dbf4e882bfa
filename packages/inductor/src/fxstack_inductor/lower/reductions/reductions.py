"""Lower reductions: sums, products, means, extremes, any/all, norms, variances and arg-reductions."""

# ruff: noqa: ARG001, PLR0917 - a rule has its operator's signature
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import ONE, ZERO, Expr, product
from fxstack_inductor.ir.nodes import Body, Call, Const, Index, Node, value_dtype
from fxstack_inductor.lower.context import Context, cast, read
from fxstack_inductor.lower.elementwise.pointwise import BOOL, call, elementwise, like, truth
from fxstack_inductor.lower.indexing.views import spread_out, squeeze, wrap
from fxstack_inductor.lower.registry import Registry

registry = Registry()
rule = registry.rule


def normalise_dims(x: Node, dims: Any) -> tuple[int, ...]:
    """Return the reduced dimensions, sorted and nonnegative; None and an empty list mean all dimensions."""
    rank = len(x.shape)
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)
    return tuple(sorted({wrap(d, rank) for d in listed})) if rank else ()


def reduce(
    ctx: Context,
    x: Node,
    dims: tuple[int, ...],
    op: str,
    dtype: torch.dtype,
    make: Callable[[Body], Body] = lambda a: a,
    *,
    keepdim: bool = False,
    indices: dict[int, Expr] | None = None,
) -> Node:
    """Reduce ``make(element)`` over ``dims`` with ``op`` into a tensor of ``dtype``."""
    if x.dtype.is_complex:
        raise NotLowered("complex numbers")
    remaining = [k for k in range(len(x.shape)) if k not in dims]

    def body(index: Sequence[Expr], reduced: Sequence[Expr]) -> Body:
        return make(read(x, spread_out(len(x.shape), (*remaining, *dims), (*index, *reduced))))

    shape = [x.shape[k] for k in remaining]
    node = ctx.reduction(op, shape, [x.shape[k] for k in dims], dtype, body)
    return unreduce(ctx, node, dims, len(x.shape)) if keepdim else node


def unreduce(ctx: Context, x: Node, dims: tuple[int, ...], rank: int) -> Node:
    """Insert dimensions of size 1 where ``dims`` were reduced."""
    remaining = [k for k in range(rank) if k not in dims]
    shape = spread_out(rank, remaining, x.shape, ONE)
    return ctx.view(x, shape, lambda index: [index[k] for k in remaining])


def _count(x: Node, dims: tuple[int, ...]) -> Expr:
    """Return the number of elements that one result reduces."""
    return product(x.shape[k] for k in dims)


def number_of(count: Expr, dtype: torch.dtype) -> Body:
    """Return a number of elements as a value of ``dtype``."""
    constant = count.as_int()
    return Const(float(constant), dtype) if constant is not None else cast(Index(count), dtype)


def _integral(dtype: torch.dtype) -> bool:
    """Whether a dtype is integer or boolean."""
    return not dtype.is_floating_point and not dtype.is_complex


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a sum: int64 for integers."""
    return torch.int64 if _integral(dtype) else dtype


def _total(op: str) -> Callable[..., Node]:
    """Return the rule of a sum or product, which accumulates integers as int64."""

    def lower(
        ctx: Context, x: Node, dim: object = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
    ) -> Node:
        """Lower a sum or product."""
        result = _accumulator(x.dtype) if dtype is None else dtype
        dims = normalise_dims(x, dim)
        return reduce(ctx, x, dims, op, result, lambda a: cast(a, value_dtype(result)), keepdim=keepdim)

    return lower


sum_ = _total("sum")
for _overload in ("sum.dim_IntList", "sum.default"):
    registry.add(_overload, sum_)
for _overload in ("prod.default", "prod.dim_int"):
    registry.add(_overload, _total("prod"))


@rule("mean.dim", "mean.default")
def mean(
    ctx: Context, x: Node, dim: object = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Node:
    """Lower a mean: a sum in the register dtype, divided by the number of elements."""
    result = x.dtype if dtype is None else dtype
    dims = normalise_dims(x, dim)
    count, register = _count(x, dims), value_dtype(result)
    # A sum that feeds further arithmetic is not rounded to a narrower dtype.
    if x.shape:
        total = sum_(ctx, x, dims or None, keepdim, dtype=register)
    else:
        total = elementwise(ctx, (x,), register, register, lambda a: a)
    return elementwise(
        ctx, (total,), total.dtype, result, lambda a: call("div", a, number_of(count, register))
    )


def _extreme(op: str) -> Callable[..., Node]:
    """Return the rule of a maximum or minimum over dimensions."""

    def lower(ctx: Context, x: Node, dim: object = None, keepdim: bool = False) -> Node:
        """Lower a maximum or minimum."""
        _require_elements(x, normalise_dims(x, dim))
        return reduce(ctx, x, normalise_dims(x, dim), op, x.dtype, keepdim=keepdim)

    return lower


def _require_elements(x: Node, dims: tuple[int, ...]) -> None:
    """Raise ``NotLowered`` if a reduced dimension is empty: eager raises."""
    if any(x.shape[k] == 0 for k in dims):
        raise NotLowered("reduction of nothing")


registry.add("amax.default", _extreme("max"))
registry.add("amin.default", _extreme("min"))
registry.add("max.default", _extreme("max"))
registry.add("min.default", _extreme("min"))


def _truth(op: str) -> Callable[..., Node]:
    """Return the rule of ``any`` or ``all``."""

    def lower(ctx: Context, x: Node, dim: object = None, keepdim: bool = False) -> Node:
        """Lower ``any`` or ``all``."""
        if x.dtype is torch.uint8:
            raise NotLowered("any/all of uint8 gives uint8")
        return reduce(ctx, x, normalise_dims(x, dim), op, BOOL, truth, keepdim=keepdim)

    return lower


for _name in ("any", "all"):
    for _overload in ("default", "dim", "dims"):
        registry.add(f"{_name}.{_overload}", _truth(_name))
del _name, _overload


# --- norms --------------------------------------------------------------------------------------------


@rule("linalg_vector_norm.default")
def vector_norm(
    ctx: Context,
    x: Node,
    ord: float = 2,
    dim: object = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Node:
    """Lower a vector norm of any order."""
    if not x.dtype.is_floating_point or dtype not in {None, x.dtype} or not x.shape:
        raise NotLowered("norm of integers or scalars, or with a conversion")
    dims, register, power = normalise_dims(x, dim), value_dtype(x.dtype), float(ord)
    op, make = NORMS.get(power) or ("sum", lambda a: call("pow", call("abs", a), like(a, power)))
    if op != "sum":
        _require_elements(x, dims)
    total = reduce(ctx, x, dims, op, register, make, keepdim=keepdim)
    if power == 2:
        return elementwise(ctx, (total,), register, x.dtype, lambda a: call("sqrt", a))
    if power not in NORMS:
        root = 1 / power
        return elementwise(ctx, (total,), register, x.dtype, lambda a: call("pow", a, like(a, root)))
    return elementwise(ctx, (total,), register, x.dtype, lambda a: a)


def _magnitude(a: Body) -> Body:
    """Return the absolute value of an element."""
    return call("abs", a)


NORMS: dict[float, tuple[str, Callable[[Body], Body]]] = {
    0.0: ("sum", lambda a: cast(call("ne", a, like(a, 0), dtype=BOOL), a.dtype)),
    1.0: ("sum", _magnitude),
    2.0: ("sum", lambda a: call("mul", a, a)),
    float("inf"): ("max", _magnitude),
    float("-inf"): ("min", _magnitude),
}
"""The reduction and the function of one element, by the norm's order. A norm of another order is a sum of powers."""


# --- variance -----------------------------------------------------------------------------------------


def moments(
    ctx: Context, x: Node, dims: tuple[int, ...], register: torch.dtype | None = None
) -> tuple[Node, Node]:
    """Return (mean, sum of squared deviations) over ``dims``, which stay with size 1; two passes over ``x``.

    They are computed in ``register``, by default the register dtype of ``x``.
    """
    dtype = register or value_dtype(x.dtype)
    count = _count(x, dims)
    total = reduce(ctx, x, dims, "sum", dtype, lambda a: cast(a, dtype), keepdim=True)
    center = elementwise(ctx, (total,), dtype, dtype, lambda a: call("div", a, number_of(count, dtype)))
    deviation = elementwise(ctx, (x, center), dtype, dtype, lambda a, m: call("sub", a, m))
    squares = reduce(ctx, deviation, dims, "sum", dtype, lambda a: call("mul", a, a), keepdim=True)
    return center, squares


def _wide_moments(ctx: Context, x: Node) -> torch.dtype:
    """Return the dtype that eager accumulates variances in: on CPU, float64 for float32 and bfloat16."""
    dtype = value_dtype(x.dtype)
    wide = ctx.target.wide_moments and x.dtype in {
        torch.float32,
        torch.bfloat16,
    }  # squares of float16 do not overflow
    return torch.float64 if wide else dtype


def _variance(
    ctx: Context, x: Node, dims: tuple[int, ...], correction: float, keepdim: bool, *, root: bool = False
) -> tuple[Node, Node]:
    """Return the variance (with ``root``, the standard deviation) and the mean."""
    if not x.dtype.is_floating_point:
        raise NotLowered("variance of integers")
    dtype = _wide_moments(ctx, x)
    center, squares = moments(ctx, x, dims, dtype)
    count = number_of(_count(x, dims), dtype)

    def body(a: Body) -> Body:
        """Return the variance, or its root, from the sum of squared deviations."""
        freedom = call("maximum", call("sub", count, like(count, correction)), like(count, 0))
        variance = call("div", a, freedom)
        return call("sqrt", variance) if root else variance

    spread = elementwise(ctx, (squares,), dtype, x.dtype, body)
    center = elementwise(ctx, (center,), dtype, x.dtype, lambda a: a)
    if keepdim:
        return spread, center
    return drop(ctx, spread, dims), drop(ctx, center, dims)


def drop(ctx: Context, x: Node, dims: tuple[int, ...]) -> Node:
    """Remove the dimensions ``dims``, which have size 1."""
    return squeeze(ctx, x, dims)


def _variance_rule(*, root: bool, mean: bool) -> Callable[..., Node | tuple[Node, Node]]:
    """Return the rule of a variance; ``root``: of the standard deviation; ``mean``: with the mean as second result."""

    def lower(
        ctx: Context, x: Node, dim: object = None, *, correction: float | None = 1, keepdim: bool = False
    ) -> Node | tuple[Node, Node]:
        """Lower the operator; a missing correction counts as 1."""
        value = 1 if correction is None else correction
        both = _variance(ctx, x, normalise_dims(x, dim), value, keepdim, root=root)
        return both if mean else both[0]

    return lower


registry.add("var.correction", _variance_rule(root=False, mean=False))
registry.add("var_mean.correction", _variance_rule(root=False, mean=True))
registry.add("std.correction", _variance_rule(root=True, mean=False))
registry.add("std_mean.correction", _variance_rule(root=True, mean=True))


# --- arg-reductions -----------------------------------------------------------------------------------


def _position(
    ctx: Context, x: Node, dims: tuple[int, ...], op: str, extreme: Node | None, *, keepdim: bool
) -> Node:
    """Return the position of the first extreme, flat over ``dims``.

    On CPU the position is the smallest position whose element equals ``extreme`` (computed with keepdim) or
    is NaN. Two vectorised passes are faster than one scalar pass. A GPU uses an arg-reduction. The extreme has the dtype
    of elements in registers: the elements, computed in another kernel, are not rounded to halves either.
    """
    if ctx.target.many_threads:
        return reduce(ctx, x, dims, f"arg{op}", torch.int64, keepdim=keepdim)
    top = extreme or reduce(ctx, x, dims, op, value_dtype(x.dtype), keepdim=True)
    remaining = [k for k in range(len(x.shape)) if k not in dims]
    count = _count(x, dims)
    _, high = count.bounds()
    dtype = torch.int32 if high is not None and high < _INT32_LIMIT else torch.int64

    def body(index: Sequence[Expr], reduced: Sequence[Expr]) -> Body:
        """Return the element's flat position if it is an extreme, else the largest number."""
        rank, flat = len(x.shape), ZERO
        for position, k in enumerate(dims):
            flat = flat * x.shape[k] + reduced[position]
        value = read(x, spread_out(rank, (*remaining, *dims), (*index, *reduced)))
        is_extreme = call("eq", value, read(top, spread_out(rank, remaining, index)), dtype=BOOL)
        if x.dtype.is_floating_point:
            is_extreme = call("bitwise_or", is_extreme, call("ne", value, value, dtype=BOOL))
        last = torch.iinfo(dtype).max
        return Call("where", (is_extreme, Index(flat, dtype), Const(last, dtype)), dtype)

    shape, ranges = [x.shape[k] for k in remaining], [x.shape[k] for k in dims]
    least = ctx.reduction("min", shape, ranges, dtype, body)
    position = elementwise(ctx, (least,), torch.int64, torch.int64, lambda a: a)
    return unreduce(ctx, position, dims, len(x.shape)) if keepdim else position


_INT32_LIMIT = 2**31 - 1


def _position_dims(x: Node, dim: int | None) -> tuple[int, ...]:
    """Return the dimensions over which an arg-reduction searches; raise ``NotLowered`` if they have no element."""
    if not x.shape:
        raise NotLowered("arg-reduction of a scalar")
    dims = normalise_dims(x, dim)
    _require_elements(x, dims)
    return dims


def _arg(op: str) -> Callable[..., Node]:
    """Return the rule of ``argmax`` or ``argmin``."""

    def lower(ctx: Context, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
        """Lower an arg-reduction over one dimension, or (None) over all."""
        return _position(ctx, x, _position_dims(x, dim), op, None, keepdim=keepdim)

    return lower


registry.add("argmax.default", _arg("max"))
registry.add("argmin.default", _arg("min"))


def _extreme_with_index(op: str) -> Callable[..., tuple[Node, Node]]:
    """Return the rule of ``max`` or ``min`` along a dimension, which returns values and positions."""

    def lower(ctx: Context, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, Node]:
        """Lower the operator: values, and positions of the first extremes."""
        dims = _position_dims(x, dim)
        dtype = x.dtype if ctx.target.many_threads else value_dtype(x.dtype)
        extreme = reduce(ctx, x, dims, op, dtype, keepdim=True)
        position = _position(ctx, x, dims, op, extreme, keepdim=keepdim)
        value = elementwise(ctx, (extreme,), dtype, x.dtype, lambda a: a) if dtype != x.dtype else extreme
        return value if keepdim else drop(ctx, value, dims), position

    return lower


registry.add("max.dim", _extreme_with_index("max"))
registry.add("min.dim", _extreme_with_index("min"))
