"""Lower pooling over small windows, forward and backward, to one expression term per window position.

The forward reads all elements of a window. The backward does not scatter: each element reads the windows that
contain the element. (On CPU, the backward of max pooling is a scatter.) Windows of more than
``MAX_POSITIONS`` positions stay in ATen.
"""

# ruff: noqa: PLR0917 - a rule has its operator's signature
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import ZERO, Expr, extremum, floordiv
from fxstack_inductor.ir.nodes import Body, Call, Coord, Index, Indirect, Node, value_dtype
from fxstack_inductor.lower.context import Context, cast, number, read
from fxstack_inductor.lower.elementwise.pointwise import BOOL, call, fold, like
from fxstack_inductor.lower.indexing.cat_pad_gather import both, compare_index, masked
from fxstack_inductor.lower.indexing.views import reshape_coords
from fxstack_inductor.lower.registry import Registry

registry = Registry()
rule = registry.rule

MAX_POSITIONS = 25
"""Largest number of window positions: each is a term of the generated expression."""


@dataclass(frozen=True, slots=True)
class Window:
    """Windows along ``size`` elements.

    Window ``k`` starts at ``k * step - pad``, and reads ``length`` elements (its taps).
    """

    size: Expr
    count: Expr
    """The number of windows."""
    length: int
    step: int
    """The distance between the starts of neighbouring windows."""
    pad: int
    """The number of missing elements before the first element."""
    dilation: int = 1
    """The distance between neighbouring taps of a window."""

    @property
    def span(self) -> int:
        """Number of elements from the first tap of a window to the last."""
        return (self.length - 1) * self.dilation + 1

    @property
    def inside(self) -> bool:
        """Whether no window can extend over the edges, so that taps need no conditions."""
        size, count = self.size.as_int(), self.count.as_int()
        if self.pad or size is None or count is None:
            return False
        return (count - 1) * self.step + self.span <= size

    @property
    def overlap(self) -> int:
        """The largest number of windows that contain one element."""
        return -(-self.length // self.step)

    def tap(self, at: Expr, k: int) -> tuple[Expr, list[Body]]:
        """Return the position of tap ``k`` of window ``at``, and the conditions for its existence."""
        position = at * self.step + (k * self.dilation - self.pad)
        if self.inside:
            return position, []
        low = [compare_index("ge", position, 0)] if self.pad else []
        return position, [*low, compare_index("lt", position, self.size)]

    def first(self, at: Expr) -> Expr:
        """Return the position of the first tap of window ``at`` that exists."""
        begin = at * self.step - self.pad
        if self.dilation == 1:
            return extremum("max", begin, ZERO)
        missing = floordiv(self.dilation - 1 - begin, self.dilation)
        return begin + extremum("max", missing, ZERO) * self.dilation

    def containing_window(self, at: Expr, back: int) -> tuple[Expr, list[Body]]:
        """Return (window, conditions): the ``back``-th last window that may contain ``at``.

        The window contains ``at`` if all conditions hold.
        """
        window = floordiv(at + self.pad, self.step) - back
        valid = [compare_index("ge", window, 0), compare_index("lt", window, self.count)]
        # If the step divides the length, every one of the last length // step windows contains the element.
        if self.length % self.step or back == self.overlap:
            valid.append(compare_index("lt", at + self.pad, window * self.step + self.length))
        return window, valid

    def covered(self, at: Expr, *, padding: bool) -> Expr:
        """Return the number of elements that window ``at`` covers, with or without padding."""
        begin = at * self.step - self.pad
        end = extremum("min", begin + self.length, self.size + self.pad)
        if padding:
            return end - begin
        return extremum("min", end, self.size) - extremum("max", begin, ZERO)


def _pair(values: Sequence[int], default: Sequence[int] = ()) -> tuple[int, int]:
    """Return a parameter for rows and columns; one number serves both, and ``default`` replaces an empty list."""
    pair = list(values or default)
    if not all(isinstance(v, int) for v in pair):
        raise NotLowered("a window of symbolic size")
    return (pair[0], pair[-1])


def _windows(
    x: Node,
    out: Sequence[Expr],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> tuple[Window, Window]:
    """Return the windows along rows and columns of the images ``x``; ``out`` is the shape of the result."""
    _require_images(x)
    pairs = (_pair(kernel), _pair(stride, kernel), _pair(padding), _pair(dilation))
    rows, columns = (Window(*one) for one in zip(x.shape[-2:], out[-2:], *pairs, strict=True))
    return rows, columns


def _require_images(x: Node) -> None:
    """Raise ``NotLowered`` unless ``x`` is a nonempty image or batch of images."""
    if len(x.shape) not in {3, 4} or any(size == 0 for size in x.shape):
        raise NotLowered("pooling of other than images")


def _require_few(count: int) -> None:
    """Raise ``NotLowered`` for windows of more than ``MAX_POSITIONS`` positions."""
    if count > MAX_POSITIONS:
        raise NotLowered(f"a window of {count} positions")


def _positions(
    x: Node, windows: tuple[Window, Window], index: Sequence[Expr], outside: float
) -> Iterator[tuple[Body, Expr]]:
    """Yield each element of the window at ``index``, and the element's flat position in the image.

    The last two coordinates of ``index`` select the window. The other coordinates select the image. The value of a
    missing element is ``outside``.
    """
    rows, columns = windows
    dtype = value_dtype(x.dtype)
    for i, j in product(range(rows.length), range(columns.length)):
        y, y_valid = rows.tap(index[-2], i)
        z, z_valid = columns.tap(index[-1], j)
        value = read(x, [*index[:-2], y, z])
        valid = [*y_valid, *z_valid]
        yield masked(both(valid), value, number(outside, dtype)), y * columns.size + z


def _divisor(
    windows: tuple[Window, Window],
    index: Sequence[Expr],
    dtype: torch.dtype,
    padding: bool,
    override: int | None,
) -> Body:
    """Return the divisor of a window's sum: ``override``, or the number of elements in window ``index``.

    ``padding``: missing elements are counted as well.
    """
    if override is not None:
        return number(float(override), dtype)
    rows, columns = windows
    count = rows.covered(index[0], padding=padding) * columns.covered(index[1], padding=padding)
    constant = count.as_int()
    return cast(Index(count), dtype) if constant is None else number(float(constant), dtype)


@rule("avg_pool2d.default")
def avg_pool(
    ctx: Context,
    x: Node,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,  # noqa: ARG001
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Node:
    """Lower average pooling to a sum over each window's positions."""
    if not x.dtype.is_floating_point:
        raise NotLowered("average of integers")
    windows = _windows(x, ctx.sizes(), kernel_size, stride, padding)
    _require_few(windows[0].length * windows[1].length)
    dtype = value_dtype(x.dtype)

    def body(index: Sequence[Expr]) -> Body:
        total = fold("add", (value for value, _ in _positions(x, windows, index, 0)))
        return call("div", total, _divisor(windows, index[-2:], dtype, count_include_pad, divisor_override))

    return ctx.pointwise(ctx.sizes(), x.dtype, body)


@rule("avg_pool2d_backward.default")
def avg_pool_backward(
    ctx: Context,
    grad: Node,
    x: Node,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,  # noqa: ARG001
    count_include_pad: bool,
    divisor_override: int | None,
) -> Node:
    """Lower the gradient: each element sums its share of the windows that contain it."""
    windows = _windows(x, grad.shape, kernel_size, stride, padding)
    dtype = value_dtype(x.dtype)

    def term(index: Sequence[Expr], at: tuple[Expr, Expr]) -> Body:
        value = read(grad, [*index[:-2], *at])
        return call("div", value, _divisor(windows, at, dtype, count_include_pad, divisor_override))

    return _sum_over_windows(ctx, x, windows, term)


def _sum_over_windows(
    ctx: Context,
    x: Node,
    windows: tuple[Window, Window],
    term: Callable[[Sequence[Expr], tuple[Expr, Expr]], Body],
) -> Node:
    """Sum ``term`` for each element over the windows that contain the element, in eager's order."""
    rows, columns = windows
    _require_few(rows.overlap * columns.overlap)
    # Eager adds from the first window to the last; ``back`` counts from the last window.
    pairs = list(product(reversed(range(rows.overlap)), reversed(range(columns.overlap))))

    def value(index: Sequence[Expr], i: int, j: int) -> Body:
        """Return one window's term; 0 if the window does not contain the element."""
        y, y_valid = rows.containing_window(index[-2], i)
        z, z_valid = columns.containing_window(index[-1], j)
        return masked(both([*y_valid, *z_valid]), term(index, (y, z)), number(0, value_dtype(x.dtype)))

    return ctx.pointwise(x.shape, x.dtype, lambda index: fold("add", (value(index, i, j) for i, j in pairs)))


@rule("max_pool2d_with_indices.default")
def max_pool(
    ctx: Context,
    x: Node,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,  # noqa: ARG001
) -> tuple[Node, Node]:
    """Lower max pooling: values and their flat positions in the image."""
    if not x.dtype.is_floating_point:
        raise NotLowered("maximum of integers")
    shape = tuple(ctx.size(size) for size in ctx.value[0].shape)
    windows = _windows(x, shape, kernel_size, stride, padding, dilation)
    _require_few(windows[0].length * windows[1].length)
    columns = windows[1]

    def first(index: Sequence[Expr]) -> Expr:
        y, z = (w.first(at) for at, w in zip(index[-2:], windows, strict=True))
        return y * columns.size + z

    # int32 positions vectorise as well as the float32 elements do.
    high = (x.shape[-2] * columns.size).bounds()[1]
    kind = torch.int32 if high is not None and high < torch.iinfo(torch.int32).max else torch.int64

    def body(index: Sequence[Expr]) -> tuple[Body, Body]:
        """Return the maximum of a window and its position."""
        best: Body = number(float("-inf"), value_dtype(x.dtype))
        where: Body = Index(first(index), kind)
        for value, position in _positions(x, windows, index, float("-inf")):
            better = call("gt", value, best, dtype=BOOL)
            # As in eager, NaN exceeds every number.
            better = call("bitwise_or", better, call("ne", value, value, dtype=BOOL))
            best = Call("where", (better, value, best), value.dtype)
            where = Call("where", (better, Index(position, kind), where), kind)
        return best, where

    values = ctx.pointwise(shape, x.dtype, lambda index: body(index)[0])
    return values, ctx.pointwise(shape, torch.int64, lambda index: body(index)[1])


@rule("max_pool2d_with_indices_backward.default")
def max_pool_backward(
    ctx: Context,
    grad: Node,
    x: Node,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,  # noqa: ARG001
    indices: Node,
) -> Node:
    """Lower the gradient: a scatter on CPU, on a GPU a sum over the windows that chose the element."""
    if not ctx.target.many_threads:
        return _scatter_gradient(ctx, grad, x, indices)
    if any(d != 1 for d in dilation):
        raise NotLowered("a dilated window")
    windows = _windows(x, grad.shape, kernel_size, stride, padding)
    dtype = value_dtype(x.dtype)

    def term(index: Sequence[Expr], at: tuple[Expr, Expr]) -> Body:
        """Return the gradient of a window that chose the element, else 0."""
        coords = [*index[:-2], *at]
        position = Index(index[-2] * x.shape[-1] + index[-1])
        chosen = call("eq", read(indices, coords), position, dtype=BOOL)
        value = read(grad, coords)
        return Call("where", (chosen, value, like(value, 0)), dtype)

    return _sum_over_windows(ctx, x, windows, term)


def _scatter_gradient(ctx: Context, grad: Node, x: Node, indices: Node) -> Node:
    """Scatter-add ``grad`` at the positions of the maxima, in eager's order, for any windows."""
    _require_images(x)
    *lead, rows, columns = x.shape
    flat = (*lead, rows * columns)
    dtype = value_dtype(x.dtype)

    def put(index: Sequence[Expr]) -> tuple[Sequence[Coord], Body]:
        # The forward computed the positions, so they need no check.
        where = Indirect(read(indices, index), flat[-1], known=True)
        return [*index[:-2], where], read(grad, index)

    init = ctx.pointwise(flat, dtype, lambda _: number(0, dtype))
    planes = ctx.scatter("add", init, grad.shape, put)
    whole = ctx.view(planes, x.shape, lambda index: reshape_coords(flat, x.shape, index))
    if dtype == x.dtype:
        return whole
    return ctx.pointwise(x.shape, x.dtype, lambda index: read(whole, index))


# --- adaptive -----------------------------------------------------------------------------------------


def _even(x: Node, out: Sequence[Expr]) -> tuple[int, int]:
    """Return the window lengths of an adaptive pooling whose windows are all equal.

    Raises:
        NotLowered: the output sizes do not divide the input sizes.
    """
    lengths = []
    for size, count in zip(x.shape[-2:], out[-2:], strict=True):
        length, parts = size.as_int(), count.as_int()
        if not length or not parts or length % parts:
            raise NotLowered("adaptive windows of different sizes")
        lengths.append(length // parts)
    return lengths[0], lengths[1]


@rule("_adaptive_avg_pool2d.default")
def adaptive_avg_pool(ctx: Context, x: Node, output_size: Sequence[int]) -> Node:  # noqa: ARG001
    lengths = _even(x, ctx.sizes())
    return avg_pool(ctx, x, lengths, lengths)


@rule("_adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool_backward(ctx: Context, grad: Node, x: Node) -> Node:
    lengths = _even(x, grad.shape)
    return avg_pool_backward(ctx, grad, x, lengths, lengths, (0,), False, True, None)
