"""Lower scatters: source elements are stored at, or combined with, elements at computed coordinates.

The result starts as a copy of the tensor that is scattered into. On CPU it receives the source's elements in
eager's order, sequentially along the dimensions in which two elements may collide. So float sums equal
eager's to the last bit. If several elements are stored at one place, the last element stays.
"""

# ruff: noqa: ARG001, PLR0917 - a rule has its operator's signature
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import ZERO, Expr, as_expr
from fxstack_inductor.ir.expr_forms import decided
from fxstack_inductor.ir.nodes import (
    Body,
    Call,
    Const,
    Coord,
    Index,
    Indirect,
    Node,
    Pointwise,
    resolve,
    value_dtype,
)
from fxstack_inductor.ir.scalar_ops import identity
from fxstack_inductor.lower.context import Context, TensorOrScalar, broadcast_coords, cast, constant, read
from fxstack_inductor.lower.elementwise.pointwise import BOOL, call, elementwise, like, masked_fill
from fxstack_inductor.lower.indexing.cat_pad_gather import AdvancedIndex, index_element, require_elements
from fxstack_inductor.lower.indexing.views import wrap
from fxstack_inductor.lower.registry import Registry

Value = Callable[[Sequence[Expr]], Body]

registry = Registry()
rule = registry.rule


def _copy_to_change(ctx: Context, x: Node, dtype: torch.dtype | None = None) -> Pointwise:
    """Return a copy of ``x`` (converted to ``dtype`` if given) that a scatter may change."""
    require_elements(x)
    return ctx.pointwise(x.shape, dtype or x.dtype, lambda index: read(x, index))


def _to_dtype(ctx: Context, x: Node, dtype: torch.dtype) -> Node:
    """Return ``x`` converted to ``dtype`` after a scatter that accumulated in the register dtype."""
    if x.dtype == dtype:
        return x
    return ctx.pointwise(x.shape, dtype, lambda index: read(x, index))


def _sum_dtype(ctx: Context, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which a scatter adds elements that eager rounds after each sum on a CPU.

    GPUs add half precision in float32: atomic sums of half-precision numbers would be slower and less exact.
    """
    return value_dtype(dtype) if ctx.target.many_threads else dtype


def _filled(ctx: Context, shape: Sequence[Expr], dtype: torch.dtype, value: float) -> Pointwise:
    """Return a tensor filled with a number, which a scatter may change."""
    return ctx.pointwise(shape, dtype, lambda _: constant(value, value_dtype(dtype)))


# --- along one dimension ------------------------------------------------------------------------------


def _along(ctx: Context, op: str, init: Pointwise, dim: int, indices: Node, value: Value) -> Node:
    """Scatter to ``init``: element ``[..., indices[p], ...]`` takes ``value(p)`` for each position ``p``."""
    if not init.shape or len(indices.shape) != len(init.shape):
        raise NotLowered("scatter into a scalar")
    at = wrap(dim, len(init.shape))

    def put(index: Sequence[Expr]) -> tuple[Sequence[Coord], Body]:
        where = Indirect(index_element(indices, index), init.shape[at], wraps=False)
        return [where if k == at else i for k, i in enumerate(index)], value(index)

    return ctx.scatter(op, init, indices.shape, put)


def _compared(ctx: Context, op: str, x: Node, dim: int, indices: Node, value: Value) -> Node | None:
    """Scatter one element of each row along ``dim`` into a tensor that is filled with a number, as a comparison.

    ``where(index == position, value, number)`` needs no memory for the filled tensor, and operators after the scatter
    can use it in the same loops. Return None for other scatters: a comparison would write all elements of ``x``.
    """
    base = resolve(x, x.index)[0]
    if not x.shape or len(indices.shape) != len(x.shape):
        return None
    if not isinstance(base, Pointwise) or not isinstance(base.body, Const):
        return None
    at = wrap(dim, len(x.shape))
    rows = [(n, m) for k, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True)) if k != at]
    if indices.shape[at] != 1 or any(decided("eq", n, m) is not True for n, m in rows):
        return None
    require_elements(x)
    positions = ctx.pointwise([x.shape[at]], torch.int64, lambda index: Index(index[0]))
    register = value_dtype(x.dtype)

    def body(index: Sequence[Expr]) -> Body:
        row = [ZERO if k == at else i for k, i in enumerate(index)]
        # The look-up checks the range of the index, as a scatter does.
        place = read(positions, [Indirect(index_element(indices, row), x.shape[at], wraps=False)])
        new, old = cast(value(row), register), read(x, index)
        new = call("add", old, new) if op == "add" else new
        return Call("where", (call("eq", place, Index(index[at]), dtype=BOOL), new, old), register)

    return ctx.pointwise(x.shape, x.dtype, body)


def _source(src: TensorOrScalar, dtype: torch.dtype) -> Value:
    """Return the function from coordinates to an element of ``src``, a tensor or one number for all elements."""
    if isinstance(src, Node):
        return lambda index: read(src, index)
    return lambda _: constant(src, value_dtype(dtype))


@rule("scatter.src", "scatter.value")
def scatter(ctx: Context, x: Node, dim: int, index: Node, src: TensorOrScalar) -> Node:
    value = _source(src, x.dtype)
    compared = _compared(ctx, "set", x, dim, index, value)
    return compared or _along(ctx, "set", _copy_to_change(ctx, x), dim, index, value)


@rule("scatter.reduce", "scatter.value_reduce")
def scatter_combined(
    ctx: Context, x: Node, dim: int, index: Node, src: TensorOrScalar, *, reduce: str
) -> Node:
    """Lower a scatter that adds or multiplies."""
    op = {"add": "add", "multiply": "mul"}[reduce]
    return _accumulated(ctx, op, x, dim, index, _source(src, x.dtype))


@rule("scatter_add.default")
def scatter_add(ctx: Context, x: Node, dim: int, index: Node, src: Node) -> Node:
    value = _source(src, x.dtype)
    return _compared(ctx, "add", x, dim, index, value) or _accumulated(ctx, "add", x, dim, index, value)


def _accumulated(ctx: Context, op: str, x: Node, dim: int, index: Node, value: Value) -> Node:
    """Scatter into a copy in the register dtype: eager accumulates half precision in float32 here."""
    init = _copy_to_change(ctx, x, value_dtype(x.dtype))
    return _to_dtype(ctx, _along(ctx, op, init, dim, index, value), x.dtype)


REDUCTIONS = {"sum": "add", "prod": "mul", "mean": "add", "amax": "max", "amin": "min"}


@rule("scatter_reduce.two")
def scatter_reduce(
    ctx: Context, x: Node, dim: int, index: Node, src: Node, reduce: str, *, include_self: bool = True
) -> Node:
    """Lower ``scatter_reduce``; without ``include_self``, targets start from the neutral element."""
    op, source = REDUCTIONS[reduce], _source(src, x.dtype)
    neutral = identity({"mean": "sum"}.get(reduce, reduce.removeprefix("a")), x.dtype)
    init = _copy_to_change(ctx, x, value_dtype(x.dtype))
    if not include_self and neutral is not None:
        first = _source(neutral, x.dtype)
        started = _along(ctx, "set", init, dim, index, first)
        init = _copy_to_change(ctx, started)
    total = _along(ctx, op, init, dim, index, source)
    if reduce == "mean":
        total = _average(ctx, total, dim, index, include_self)
    return _to_dtype(ctx, total, x.dtype)


def _average(ctx: Context, total: Node, dim: int, index: Node, include_self: bool) -> Node:
    """Divide the sums ``total`` by the number of elements that were added to each."""
    dtype = total.dtype
    none = _filled(ctx, total.shape, dtype, int(include_self))
    counts = _along(ctx, "add", none, dim, index, _source(1, dtype))

    def body(a: Body, n: Body) -> Body:
        # Without ``include_self``, an element that takes no source keeps its value.
        n = Call("where", (call("lt", n, like(n, 1), dtype=BOOL), like(n, 1), n), n.dtype)
        return call("div" if dtype.is_floating_point else "floordiv", a, n)

    return elementwise(ctx, (total, counts), dtype, dtype, body)


# --- slices ---------------------------------------------------------------------------------------------


def _slices(
    ctx: Context, op: str, init: Pointwise, dim: int, indices: Node, value: Value, *, wraps: bool = False
) -> Node:
    """Scatter slices: slice ``indices[k]`` takes slice ``k`` of ``value``; ``wraps`` as in ``Indirect``."""
    if not init.shape or len(indices.shape) != 1:
        raise NotLowered("slices of or at a scalar")
    at = wrap(dim, len(init.shape))

    def put(index: Sequence[Expr]) -> tuple[Sequence[Coord], Body]:
        where = Indirect(index_element(indices, [index[at]]), init.shape[at], wraps=wraps)
        return [where if k == at else i for k, i in enumerate(index)], value(index)

    ranges = [indices.shape[0] if k == at else size for k, size in enumerate(init.shape)]
    return ctx.scatter(op, init, ranges, put)


def _require_dtype(x: Node, values: Node) -> None:
    """Raise ``NotLowered`` if ``values`` have another dtype than ``x``."""
    if values.dtype is not x.dtype:
        raise NotLowered("values of another dtype, which the kernel refuses")


def _require_slices(x: Node, dim: int, index: Node, source: Node) -> None:
    """Raise ``NotLowered`` if ``source`` has another dtype, rank or shape than the slices of ``x``.

    Fake tensors accept another shape, ATen kernels do not.
    """
    _require_dtype(x, source)
    if not x.shape or len(source.shape) != len(x.shape):
        raise NotLowered("slices of another rank")
    at = wrap(dim, len(x.shape))
    required = [index.layout.numel if k == at else size for k, size in enumerate(x.shape)]
    if any(decided("eq", a, b) is False for a, b in zip(required, source.shape, strict=True)):
        raise NotLowered("slices of another shape")


@rule("index_add.default")
def index_add(ctx: Context, x: Node, dim: int, index: Node, source: Node, *, alpha: Any = 1) -> Node:
    """Lower the addition of slices at indices, with eager's rounding."""
    if isinstance(alpha, Expr) or (x.dtype is BOOL and alpha != 1):
        raise NotLowered("symbolic alpha")
    _require_slices(x, dim, index, source)

    def value(at: Sequence[Expr]) -> Body:
        element = read(source, at)
        return element if alpha == 1 else call("mul", element, like(element, alpha))

    # Eager accumulates unscaled rows like scatter_add; it adds other slices one by one and rounds each sum.
    wide = len(x.shape) > 1 and wrap(dim, len(x.shape)) == 0 and alpha == 1
    init = _copy_to_change(ctx, x, value_dtype(x.dtype) if wide else _sum_dtype(ctx, x.dtype))
    return _to_dtype(ctx, _slices(ctx, "add", init, dim, index, value), x.dtype)


@rule("index_copy.default")
def index_copy(ctx: Context, x: Node, dim: int, index: Node, source: Node) -> Node:
    _require_slices(x, dim, index, source)
    return _slices(ctx, "set", _copy_to_change(ctx, x), dim, index, lambda at: read(source, at))


@rule("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(ctx: Context, x: Node, dim: int, index: Node, value: TensorOrScalar) -> Node:
    """Lower the fill of slices at indices with one number."""
    dtype = value_dtype(x.dtype)
    element = cast(read(value, ()), dtype) if isinstance(value, Node) else constant(value, dtype)
    return _slices(ctx, "set", _copy_to_change(ctx, x), dim, index, lambda _: element, wraps=True)


# --- at coordinates -----------------------------------------------------------------------------------


@rule("index_put.default", "_unsafe_index_put.default")
def index_put(
    ctx: Context, x: Node, indices: Sequence[Node | None], values: Node, accumulate: bool = False
) -> Node:
    """Lower ``x[i, j] = values`` or, with ``accumulate``, ``+=``."""
    if any(i is not None and i.dtype is BOOL for i in indices):
        return _masked_put(ctx, x, indices, values, accumulate)
    _require_dtype(x, values)
    places = AdvancedIndex(x, indices)

    def put(index: Sequence[Expr]) -> tuple[Sequence[Coord], Body]:
        return places.coords(index), read(values, broadcast_coords(values.shape, index))

    if len(values.shape) > len(places.shape):
        raise NotLowered("values of more dimensions than the indices pick")
    if not accumulate:
        return ctx.scatter("set", _copy_to_change(ctx, x), places.shape, put)
    init = _copy_to_change(ctx, x, _sum_dtype(ctx, x.dtype))
    return _to_dtype(ctx, ctx.scatter("add", init, places.shape, put), x.dtype)


def _masked_put(
    ctx: Context, x: Node, indices: Sequence[Node | None], values: Node, accumulate: bool
) -> Node:
    """Store one number wherever a mask over the leading dimensions is true."""
    mask = indices[0]
    if len(indices) != 1 or mask is None or accumulate or values.layout.numel != 1:
        raise NotLowered("index by a mask")
    rank = len(mask.shape)
    shape = [*x.shape[:rank], *(as_expr(1) for _ in x.shape[rank:])]
    wide = ctx.view(mask, shape, lambda index: index[:rank])
    value = ctx.view(values, (), lambda _: [as_expr(0)] * len(values.shape))
    return masked_fill(ctx, x, wide, value)


@rule("embedding_dense_backward.default")
def embedding_backward(
    ctx: Context, grad: Node, indices: Node, num_weights: object, padding_idx: int, scale_grad_by_freq: bool
) -> Node:
    """Sum rows of ``grad`` by index. As in eager, ``padding_idx`` and out-of-range indices are ignored."""
    if scale_grad_by_freq or len(grad.shape) != len(indices.shape) + 1:
        raise NotLowered("gradients scaled by frequency")
    rows, rank = ctx.sizes()[0], len(indices.shape)

    def put(index: Sequence[Expr]) -> tuple[Sequence[Coord], Body]:
        """Return the row that takes a row of ``grad``; ignored rows add 0 to row 0."""
        row, value = index_element(indices, index[:rank]), read(grad, index)
        last = constant(rows - 1, torch.int64)
        counts = call(
            "bitwise_and", call("ge", row, like(row, 0), dtype=BOOL), call("le", row, last, dtype=BOOL)
        )
        counts = call("bitwise_and", counts, call("ne", row, like(row, padding_idx), dtype=BOOL))
        row_in_range = Call("where", (counts, row, like(row, 0)), torch.int64)
        added = Call("where", (counts, value, like(value, 0)), value.dtype)
        return [Indirect(row_in_range, rows, known=True), index[rank]], added

    init = _filled(ctx, ctx.sizes(), _sum_dtype(ctx, grad.dtype), 0)
    total = ctx.scatter("add", init, [*indices.shape, grad.shape[-1]], put)
    return _to_dtype(ctx, total, grad.dtype)
