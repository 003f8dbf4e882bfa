"""Lower operators that join, pad, reorder and look up: index arithmetic, masks, computed coordinates."""

# ruff: noqa: ARG001, PLR0917 - a rule has its operator's signature
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import ZERO, Expr, as_expr, floordiv, mod
from fxstack_inductor.ir.expr_forms import decided
from fxstack_inductor.ir.nodes import Body, Call, Const, Coord, Index, Indirect, Masked, Node, value_dtype
from fxstack_inductor.lower.context import Context, broadcast_coords, broadcast_shapes, cast, number, read
from fxstack_inductor.lower.elementwise.pointwise import BOOL, fold
from fxstack_inductor.lower.indexing.affine import index_coord
from fxstack_inductor.lower.indexing.views import selected, slice_start, wrap
from fxstack_inductor.lower.registry import Registry

registry = Registry()
rule = registry.rule

MAX_PARTS = 16
"""Largest number of tensors in a concatenation that becomes a kernel; each part is a branch of its elements."""


def compare_index(op: str, left: Expr | int, right: Expr | int) -> Body:
    """Return a comparison of coordinates, or a constant if the coordinates' bounds decide the comparison."""
    decision = decided(op, as_expr(left), as_expr(right))
    if decision is not None:
        return Const(decision, BOOL)
    return Call(op, (Index(as_expr(left)), Index(as_expr(right))), BOOL)


def both(conditions: Sequence[Body]) -> Body:
    """Return the conjunction of conditions; those that are always true are left out."""
    open_ = [c for c in conditions if c != Const(True, BOOL)]
    return fold("bitwise_and", open_) if open_ else Const(True, BOOL)


def masked(condition: Body, body: Body, other: Const) -> Body:
    """Return ``body`` where ``condition`` holds, else ``other``."""
    return body if condition == Const(True, BOOL) else Masked(condition, body, other)


@rule("cat.default")
def cat(ctx: Context, tensors: Sequence[Node], dim: int = 0) -> Node:
    """Lower a concatenation: an element belongs to the part whose range has its coordinate."""
    dtype = ctx.value.dtype
    # Eager ignores empty one-dimensional tensors in a concatenation of tensors of any rank.
    parts = [t for t in tensors if not (len(t.shape) == 1 and t.shape[0] == 0)]
    if not parts or len(parts) > MAX_PARTS:
        raise NotLowered(f"concatenation of {len(parts)} tensors")
    at = wrap(dim, len(parts[0].shape))
    register = value_dtype(dtype)
    ends: list[Expr] = []
    for part in parts:
        ends.append((ends[-1] if ends else ZERO) + part.shape[at])

    def body(index: Sequence[Expr]) -> Body:
        """Return the element, by a chain of conditions from the last part to the first."""
        result: Body | None = None
        for k in reversed(range(len(parts))):
            start = ends[k - 1] if k else ZERO
            coords = [i - start if d == at else i for d, i in enumerate(index)]
            # In the range of a part of size 1 the coordinate can only be 0.
            coords = [ZERO if parts[k].shape[d] == 1 else c for d, c in enumerate(coords)]
            value = cast(read(parts[k], coords), register)
            if result is None and len(parts) == 1:
                return value
            inside = compare_index("lt", index[at], ends[k])
            if result is None:
                result = masked(compare_index("ge", index[at], start), value, number(0, register))
            else:
                after = masked(compare_index("ge", index[at], ends[k]), result, number(0, register))
                before = masked(inside, value, number(0, register))
                result = Call("where", (inside, before, after), register)
        assert result is not None
        return result

    return ctx.pointwise(ctx.sizes(), dtype, body)


@rule("constant_pad_nd.default")
def constant_pad(ctx: Context, x: Node, pad: Sequence[Any], value: float = 0) -> Node:
    """Lower a padding with one number; negative widths cut."""
    widths = [ctx.size(p) for p in pad]
    lead = len(x.shape) - len(widths) // 2
    shape = ctx.sizes()
    register = value_dtype(x.dtype)
    before = [ZERO] * len(x.shape)
    padded = []
    for k in range(len(widths) // 2):
        dim = len(x.shape) - 1 - k
        before[dim] = widths[2 * k]
        if not (widths[2 * k] == 0 and widths[2 * k + 1] == 0):
            padded.append(dim)
    if lead < 0 or any(size == 0 for size in shape):
        raise NotLowered("padding of nothing")

    def body(index: Sequence[Expr]) -> Body:
        """Return the element of ``x``, or the number outside of ``x``."""
        coords = [i - b for i, b in zip(index, before, strict=True)]
        element = read(x, coords)
        if not padded:
            return element
        conditions = [compare_index("ge", coords[d], 0) for d in padded]
        conditions += [compare_index("lt", coords[d], x.shape[d]) for d in padded]
        return masked(both(conditions), element, number(value, register))

    return ctx.pointwise(shape, x.dtype, body)


@rule("flip.default")
def flip(ctx: Context, x: Node, dims: Sequence[int]) -> Node:
    """Lower ``flip``: coordinates along ``dims`` count from the end."""
    flipped = {wrap(d, len(x.shape)) for d in dims}

    def body(index: Sequence[Expr]) -> Body:
        """Return the element from the other end."""
        coords = [x.shape[k] - 1 - i if k in flipped else i for k, i in enumerate(index)]
        coords = [ZERO if x.shape[k] == 1 else c for k, c in enumerate(coords)]
        return read(x, coords)

    return ctx.pointwise(x.shape, x.dtype, body)


@rule("roll.default")
def roll(ctx: Context, x: Node, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Node:
    """Lower ``roll`` along dimensions; a roll of the flattened tensor stays in ATen."""
    if not dims or any(size == 0 for size in x.shape):
        raise NotLowered("roll of a flattened tensor")
    amounts = {wrap(d, len(x.shape)): ctx.size(s) for s, d in zip(shifts, dims, strict=True)}
    if len(amounts) != len(dims):
        raise NotLowered("roll twice over one dimension")

    def body(index: Sequence[Expr]) -> Body:
        coords = [mod(i - amounts[k], x.shape[k]) if k in amounts else i for k, i in enumerate(index)]
        return read(x, coords)

    return ctx.pointwise(x.shape, x.dtype, body)


@rule("repeat.default")
def repeat(ctx: Context, x: Node, repeats: Sequence[Any]) -> Node:
    """Lower ``repeat``: coordinates are taken modulo the sizes of ``x``."""
    lead = len(repeats) - len(x.shape)
    if any(size == 0 for size in ctx.sizes()):
        raise NotLowered("repetition of nothing")

    def body(index: Sequence[Expr]) -> Body:
        """Return the repeated element."""
        coords = []
        for k, size in enumerate(x.shape):
            coord = index[lead + k]
            coords.append(coord if ctx.size(repeats[lead + k]) == 1 else mod(coord, size))
        return read(x, coords)

    return ctx.pointwise(ctx.sizes(), x.dtype, body)


@rule("select_scatter.default")
def select_scatter(ctx: Context, x: Node, src: Node, dim: int, index: object) -> Node:
    """Lower ``x`` with ``src`` in place of one slice."""
    at = wrap(dim, len(x.shape))
    position = selected(x.shape[at], ctx.size(index))
    register = value_dtype(x.dtype)

    def body(i: Sequence[Expr]) -> Body:
        """Return the element of ``src`` in the slice, else of ``x``."""
        selected_here = compare_index("eq", i[at], position)
        value = cast(read(src, [*i[:at], *i[at + 1 :]]), register)
        return Call("where", (selected_here, value, read(x, i)), register)

    return ctx.pointwise(x.shape, x.dtype, body)


@rule("slice_scatter.default")
def slice_scatter(
    ctx: Context, x: Node, src: Node, dim: int = 0, start: object = None, end: object = None, step: int = 1
) -> Node:
    """Lower ``x`` with ``src`` in place of a range of slices."""
    at = wrap(dim, len(x.shape))
    count = src.shape[at]
    begin = slice_start(x.shape[at], None if start is None else ctx.size(start), count)
    register = value_dtype(x.dtype)

    def body(i: Sequence[Expr]) -> Body:
        """Return the element of ``src`` in the range, else of ``x``."""
        far = i[at] - begin
        tests = [compare_index("ge", far, ZERO), compare_index("lt", far, count * step)]
        if step != 1:
            tests.append(compare_index("eq", mod(far, step), ZERO))
        inside = both(tests)
        coords = [ZERO if src.shape[k] == 1 else c for k, c in enumerate(i)]
        if count != 1:
            coords[at] = floordiv(far, step)
        value = masked(inside, cast(read(src, coords), register), number(0, register))
        return Call("where", (inside, value, read(x, i)), register)

    return ctx.pointwise(x.shape, x.dtype, body)


@rule("diagonal_scatter.default")
def diagonal_scatter(ctx: Context, x: Node, src: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Node:
    """Lower ``x`` with ``src`` on a diagonal."""
    row, column = wrap(dim1, len(x.shape)), wrap(dim2, len(x.shape))
    above, below = max(offset, 0), max(-offset, 0)
    register = value_dtype(x.dtype)

    def body(i: Sequence[Expr]) -> Body:
        """Return the element of ``src`` on the diagonal, else of ``x``."""
        on = compare_index("eq", i[row] + above, i[column] + below)
        rest = [c for k, c in enumerate(i) if k not in (row, column)]
        at = i[column] if below else i[row]
        value = masked(on, cast(read(src, [*rest, at]), register), number(0, register))
        return Call("where", (on, value, read(x, i)), register)

    return ctx.pointwise(x.shape, x.dtype, body)


# --- computed coordinates -----------------------------------------------------------------------------


def index_element(node: Node, coords: Sequence[Expr]) -> Body:
    """Return an element of an index tensor, as int64."""
    if node.dtype not in (torch.int64, torch.int32):
        raise NotLowered(f"index of {node.dtype}")
    return cast(read(node, coords), torch.int64)


def require_elements(x: Node) -> None:
    """Raise ``NotLowered`` for a look-up in an empty tensor: eager raises an error that a kernel cannot."""
    if any(size == 0 for size in x.shape):
        raise NotLowered("look-up in an empty tensor")


@rule("embedding.default")
def embedding(
    ctx: Context,
    weight: Node,
    indices: Node,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Node:
    """Lower a look-up of rows; negative indices are out of range, as in eager."""
    require_elements(weight)
    rank = len(indices.shape)

    def body(index: Sequence[Expr]) -> Body:
        row = index_coord(index_element(indices, index[:rank]), weight.shape[0], wraps=False)
        return read(weight, [row, index[rank]])

    return ctx.pointwise([*indices.shape, weight.shape[1]], weight.dtype, body)


@rule("index_select.default")
def index_select(ctx: Context, x: Node, dim: int, indices: Node) -> Node:
    """Lower a look-up of slices by a list of indices."""
    require_elements(x)
    if not x.shape or not indices.shape:
        raise NotLowered("index_select of a scalar")
    at = wrap(dim, len(x.shape))

    def body(index: Sequence[Expr]) -> Body:
        where = index_coord(index_element(indices, [index[at]]), x.shape[at], wraps=False)
        return read(x, [where if k == at else i for k, i in enumerate(index)])

    return ctx.pointwise(ctx.sizes(), x.dtype, body)


@rule("gather.default")
def gather(ctx: Context, x: Node, dim: int, indices: Node, *, sparse_grad: bool = False) -> Node:
    """Lower a look-up along one dimension, with an index per element."""
    require_elements(x)
    if not x.shape or len(indices.shape) != len(x.shape):
        raise NotLowered("gather of a scalar")
    at = wrap(dim, len(x.shape))

    def body(index: Sequence[Expr]) -> Body:
        """Return the element at the looked-up coordinate."""
        where = index_coord(index_element(indices, index), x.shape[at], wraps=False)
        coords: list[Coord] = [where if k == at else i for k, i in enumerate(index)]
        return read(x, coords)

    return ctx.pointwise(indices.shape, x.dtype, body)


class AdvancedIndex:
    """The elements of ``x`` that index tensors select, as in ``x[:, i, j]``: their shape and their coordinates in ``x``.

    As in NumPy, the broadcast dimensions of the index tensors replace the indexed dimensions, if these are
    adjacent. Otherwise the broadcast dimensions come first.
    """

    def __init__(self, x: Node, indices: Sequence[Node | None]) -> None:
        self.x = x
        self.given = [k for k, i in enumerate(indices) if i is not None]
        self.tensors = [i for i in indices if i is not None]
        if not self.tensors or any(t.dtype not in (torch.int64, torch.int32) for t in self.tensors):
            raise NotLowered("index by a mask")
        self.looked = broadcast_shapes([t.shape for t in self.tensors])
        first, last = self.given[0], self.given[-1]
        start = first if self.given == list(range(first, last + 1)) else 0
        rest = [k for k in range(len(x.shape)) if k not in self.given]
        self.before = [k for k in rest if k < start]
        self.after = [k for k in rest if k >= start]
        shape = [x.shape[k] for k in self.before] + list(self.looked)
        self.shape = (*shape, *(x.shape[k] for k in self.after))

    def coords(self, index: Sequence[Expr], at: Callable[[Body, Expr], Coord] = Indirect) -> list[Coord]:
        """Return the coordinates in ``x`` of selected element ``index``; ``at`` makes the coordinate of an index tensor."""
        begin, end = len(self.before), len(self.before) + len(self.looked)
        coords: list[Coord] = [ZERO] * len(self.x.shape)
        for k, position in zip(self.before, index[:begin], strict=True):
            coords[k] = position
        for k, position in zip(self.after, index[end:], strict=True):
            coords[k] = position
        for k, tensor in zip(self.given, self.tensors, strict=True):
            value = index_element(tensor, broadcast_coords(tensor.shape, index[begin:end]))
            coords[k] = at(value, self.x.shape[k])
        return coords


@rule("index.Tensor", "_unsafe_index.Tensor")
def index_tensor(ctx: Context, x: Node, indices: Sequence[Node | None]) -> Node:
    """Lower ``x[i, :, j]`` with index tensors; masks stay in ATen."""
    require_elements(x)
    places = AdvancedIndex(x, indices)
    return ctx.pointwise(places.shape, x.dtype, lambda index: read(x, places.coords(index, index_coord)))
