"""Lower dropout on a GPU: kernels compute the numbers of eager's CUDA kernel (``lower.host.draws``)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import ZERO, Expr
from fxstack_inductor.ir.expr_forms import contiguous_strides
from fxstack_inductor.ir.nodes import (
    Body,
    Call,
    Const,
    Extern,
    Index,
    Input,
    Node,
    Read,
    Shape,
    View,
    value_dtype,
)
from fxstack_inductor.lower.context import Context, cast, constant, read
from fxstack_inductor.lower.host.draws import FIELDS, Draw, vector_size
from fxstack_inductor.lower.layouts import layout_of, strided_view
from fxstack_inductor.lower.registry import Registry

registry = Registry()
rule = registry.rule

UNIFORM = "eager_uniform"
"""The scalar operation of one number between 0 and 1; its arguments are ``FIELDS`` and two places of the element."""


@rule("native_dropout.default")
def native_dropout(ctx: Context, x: Node, p: object, train: object = None) -> tuple[Node, Node]:
    """Lower dropout: zero an element with probability ``p``, scale the others; return the elements kept, too."""
    if train is False:
        return _copy(ctx, x), _filled(ctx, x, torch.bool, value=True)
    if p == 1:
        return _filled(ctx, x, x.dtype, value=0), _filled(ctx, x, torch.bool, value=False)
    if not ctx.target.draws:
        raise NotLowered("the numbers are those of ATen's kernel")
    if not isinstance(p, (int, float)) or not 0 <= p < 1:
        raise NotLowered("a probability that only the host knows")
    keep = _rounded(1.0 - p, x.dtype)
    number = _draw(ctx, x)
    acts = value_dtype(x.dtype)

    def kept(index: Sequence[Expr]) -> Body:
        """Return whether the element is kept."""
        return Call("lt", (cast(number(index), acts), Const(keep, acts)), torch.bool)

    mask = ctx.pointwise(x.shape, torch.bool, kept)

    def scaled(index: Sequence[Expr]) -> Body:
        """Return the element times 0 or 1, times the scale: infinite elements become NaN, as in eager."""
        masked = Call("mul", (read(x, index), cast(Read(mask, tuple(index)), acts)), acts)
        return Call("mul", (masked, Const(_rounded(1.0 / keep, x.dtype), acts)), acts)

    return ctx.pointwise(x.shape, x.dtype, scaled), mask


def _rounded(value: float, dtype: torch.dtype) -> float:
    """Return ``value`` in the precision in which eager computes with elements of ``dtype``."""
    if dtype is torch.float64:
        return value
    single: float = struct.unpack("f", struct.pack("f", value))[0]
    return single


def _copy(ctx: Context, x: Node) -> Node:
    return ctx.pointwise(x.shape, x.dtype, lambda index: read(x, index))


def _filled(ctx: Context, x: Node, dtype: torch.dtype, *, value: float) -> Node:
    return ctx.pointwise(x.shape, dtype, lambda _: constant(value, value_dtype(dtype)))


class _Numbers:
    """The random number of each element, as an expression of the element's coordinates."""

    def __init__(self, arguments: Sequence[Body], x: Node, memory: Shape) -> None:
        self._arguments = arguments
        self._strides = memory, contiguous_strides(x.shape)
        _, most = (x.layout.numel - 1).bounds()
        self._dtype = torch.int32 if most is not None and most < _INT32 else torch.int64

    def __call__(self, index: Sequence[Expr]) -> Body:
        places = [
            Index(sum((i * s for i, s in zip(index, strides, strict=True)), ZERO), self._dtype)
            for strides in self._strides
        ]
        return Call(UNIFORM, (*self._arguments, *places), torch.float32)


_INT32 = 2**31


def _draw(ctx: Context, x: Node) -> _Numbers:
    """Reserve a number for each element of ``x``, by a call of the host before the kernel."""
    result = layout_of(ctx.value[0])
    dense = _is_dense(x, result.stride)
    tensor, offset = _place(x)
    call = Draw(ctx.device.index or 0, x.dtype.itemsize, dense)
    operands = (x.layout.numel, ZERO if offset is None else offset, tensor)
    arguments: dict[str, Body] = {
        name: Read(node, ()) for name, node in ctx.arguments(call, operands, FIELDS, torch.int64).items()
    }
    numel, first = x.layout.numel.as_int(), None if offset is None else offset.as_int()
    if not dense:
        arguments["vector"] = Const(1, torch.int64)
    elif tensor is None and numel and first is not None:
        size = vector_size(numel, x.dtype.itemsize, first * x.dtype.itemsize)
        arguments["vector"] = Const(size, torch.int64)
    return _Numbers([arguments[name] for name in FIELDS], x, result.stride)


def _is_dense(x: Node, result: Shape) -> bool:
    """Whether eager's input fills its memory: only then eager's result has the strides of the input.

    Raises:
        NotLowered: the sizes decide it in each call.
    """
    layout = x.layout
    if all(a == b for a, b, size in zip(layout.stride, result, layout.shape, strict=True) if size != 1):
        return True
    if any(size.as_int() is None for size in (*layout.shape, *layout.stride, *result)):
        raise NotLowered("symbolic strides that may have gaps")
    return False


def _place(x: Node) -> tuple[Node | None, Expr | None]:
    """Return where eager's input lies: ``x`` if the caller's memory decides it, and its offset in memory of the graph.

    A view that no strides describe stands for a copy of eager, which has memory of its own.
    """
    window = strided_view(x) if isinstance(x, View) else (x, ZERO)
    if window is None:
        return None, ZERO
    base, offset = window
    if isinstance(base, Input) or (isinstance(base, Extern) and base.call.alias):
        return x, None
    return None, offset
