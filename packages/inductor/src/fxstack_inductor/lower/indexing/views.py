"""Lower operators that only rename coordinates."""

# ruff: noqa: ARG001, PLR0917 - a rule has its operator's signature
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import ONE, ZERO, Expr, as_expr, extremum, floordiv, mod, product
from fxstack_inductor.ir.nodes import Node
from fxstack_inductor.lower.context import Context
from fxstack_inductor.lower.registry import Registry

registry = Registry()
rule = registry.rule


def wrap(dim: int, rank: int) -> int:
    """Return ``dim`` counted from the front; raise ``NotLowered`` if there is no such dimension."""
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        raise NotLowered(f"dimension {dim} of {rank}")
    return dim % rank


def spread_out(rank: int, places: Iterable[int], values: Iterable[Expr], other: Expr = ZERO) -> list[Expr]:
    """Return a list of ``rank`` expressions with ``values`` at ``places`` and ``other`` elsewhere."""
    by_position = dict(zip(places, values, strict=True))
    return [by_position.get(k, other) for k in range(rank)]


@rule("alias.default", "detach.default", "lift_fresh.default", "lift.default")
def alias(ctx: Context, x: Node) -> Node:
    return ctx.view(x, x.shape, lambda index: index)


@rule("permute.default")
def permute(ctx: Context, x: Node, dims: Sequence[int]) -> Node:
    """Lower ``permute`` to a view."""
    order = [wrap(d, len(x.shape)) for d in dims]
    inverse = [order.index(k) for k in range(len(order))]
    return ctx.view(x, [x.shape[d] for d in order], lambda index: [index[k] for k in inverse])


@rule("transpose.int")
def transpose(ctx: Context, x: Node, dim0: int, dim1: int) -> Node:
    """Lower ``transpose`` to a permutation; a scalar stays as it is."""
    order = list(range(len(x.shape)))
    if not order:
        return alias(ctx, x)
    a, b = wrap(dim0, len(order)), wrap(dim1, len(order))
    order[a], order[b] = order[b], order[a]
    return permute(ctx, x, order)


@rule("t.default")
def t(ctx: Context, x: Node) -> Node:
    return alias(ctx, x) if len(x.shape) < 2 else transpose(ctx, x, 0, 1)


@rule("unsqueeze.default")
def unsqueeze(ctx: Context, x: Node, dim: int) -> Node:
    """Lower ``unsqueeze`` to a view that ignores the new coordinate."""
    at = wrap(dim, len(x.shape) + 1)
    shape = [*x.shape[:at], ONE, *x.shape[at:]]
    return ctx.view(x, shape, lambda index: [*index[:at], *index[at + 1 :]])


@rule("squeeze.dim", "squeeze.dims", "squeeze.default")
def squeeze(ctx: Context, x: Node, dims: int | Sequence[int] | None = None) -> Node:
    """Lower ``squeeze``: drop the dimensions of size 1 among ``dims``, by default among all."""
    if dims is None:
        chosen = set(range(len(x.shape)))
    else:
        listed = [dims] if isinstance(dims, int) else dims
        chosen = {wrap(d, len(x.shape)) for d in listed}
    keep = [k for k, size in enumerate(x.shape) if not (k in chosen and size == 1)]
    rank = len(x.shape)
    return ctx.view(x, [x.shape[k] for k in keep], lambda index: spread_out(rank, keep, index))


@rule("expand.default")
def expand(ctx: Context, x: Node, size: Sequence[Expr | int], *, implicit: bool = False) -> Node:
    """Lower ``expand``: coordinates of dimensions of size 1 become 0."""
    lead = len(size) - len(x.shape)
    shape = [as_expr(s) for s in size]
    for k, extent in enumerate(x.shape):
        if extent != 1 or shape[lead + k] == -1:
            shape[lead + k] = extent

    def coords(index: Sequence[Expr]) -> list[Expr]:
        return [ZERO if extent == 1 else index[lead + k] for k, extent in enumerate(x.shape)]

    return ctx.view(x, shape, coords)


@rule("view.default", "_unsafe_view.default", "reshape.default", "_reshape_alias.default")
def view(ctx: Context, x: Node, size: Sequence[Expr | int], *_: object) -> Node:
    """Lower a reshape to a view, also where eager would copy: elements keep their order."""
    shape = _infer(x, [as_expr(s) for s in size])
    if any(s == 0 for s in shape):
        # No kernel reads an element of an empty tensor, so any coordinates do.
        return ctx.view(x, shape, lambda _: [ZERO] * len(x.shape))
    return ctx.view(x, shape, lambda index: reshape_coords(x.shape, shape, index))


def _infer(x: Node, shape: list[Expr]) -> list[Expr]:
    """Return ``shape`` with the size -1 replaced by the size that the number of elements requires."""
    if not any(s == -1 for s in shape):
        return shape
    others = product(s for s in shape if s != -1)
    missing = floordiv(x.layout.numel, others)
    return [missing if s == -1 else s for s in shape]


def reshape_coords(source: Sequence[Expr], target: Sequence[Expr], index: Sequence[Expr]) -> list[Expr]:
    """Return the coordinates in ``source`` of the element at ``index`` of ``target``.

    Dimensions are matched in groups of equal size, so a dimension that the reshape keeps stays a plain
    variable.
    """
    coords = [ZERO] * len(source)
    for group, target_group in _groups(source, target):
        flat = ZERO
        for k in target_group:
            flat = flat * target[k] + index[k]
        for k in reversed(group[1:]):
            coords[k] = mod(flat, source[k])
            flat = floordiv(flat, source[k])
        if group:
            coords[group[0]] = flat
    return coords


def _groups(source: Sequence[Expr], target: Sequence[Expr]) -> list[tuple[list[int], list[int]]]:
    """Return groups of neighbouring dimensions (positions in ``source``, positions in ``target``) of equal size."""
    left = [k for k, size in enumerate(source) if size != 1]
    right = [k for k, size in enumerate(target) if size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    while left and right:
        a, b = [left.pop(0)], [right.pop(0)]
        size_a, size_b = source[a[0]], target[b[0]]
        while size_a != size_b:
            grow_left = _smaller(size_a, size_b) if left and right else bool(left)
            if grow_left:
                a.append(left.pop(0))
                size_a = size_a * source[a[-1]]
            elif right:
                b.append(right.pop(0))
                size_b = size_b * target[b[-1]]
            else:
                # Equal symbolic sizes with different expressions: take the rest as one group.
                break
        groups.append((a, b))
    if left or right:
        last = groups.pop() if groups else ([], [])
        groups.append((last[0] + left, last[1] + right))
    return groups


def _smaller(a: Expr, b: Expr) -> bool:
    """Whether ``a`` is smaller than ``b``; symbolic sizes are compared by their number of factors."""
    x, y = a.as_int(), b.as_int()
    if x is not None and y is not None:
        return x < y
    return len(a.terms[0][0] if a.terms else ()) <= len(b.terms[0][0] if b.terms else ())


@rule("slice.Tensor")
def slice_(
    ctx: Context,
    x: Node,
    dim: int = 0,
    start: Expr | int | None = None,
    end: Expr | int | None = None,
    step: int = 1,
) -> Node:
    """Lower a slice to a view; the fake value gives the slice's size."""
    at = wrap(dim, len(x.shape))
    size = ctx.sizes()[at]
    return _part(ctx, x, at, slice_start(x.shape[at], start, size), size, step)


def _part(ctx: Context, x: Node, at: int, begin: Expr, size: Expr, step: int = 1) -> Node:
    """Return a view of every ``step``-th slice of ``x`` in dimension ``at``, from ``begin`` on, ``size`` in all."""
    shape = [*x.shape[:at], size, *x.shape[at + 1 :]]
    return ctx.view(x, shape, lambda index: [begin + i * step if k == at else i for k, i in enumerate(index)])


def slice_start(size: Expr, start: Expr | int | None, count: Expr) -> Expr:
    """Return the first position of a slice of ``count`` elements in a dimension of ``size``.

    A start behind the end is not clamped: such a slice has no elements, so no kernel reads the start.
    """
    begin = ZERO if start is None else as_expr(start)
    low, high = begin.bounds()
    length = size.as_int()
    if low is not None and low >= 0:
        return as_expr(min(low, length)) if low == high and length is not None else begin
    if high is not None and high < 0:
        from_end = size + begin
        return from_end if count == -begin else extremum("max", from_end, ZERO)
    raise NotLowered(f"slice from {start}, which may be negative, of a dimension of {size}")


def selected(size: Expr, index: Expr) -> Expr:
    """Return the position that the (possibly negative) ``index`` selects in a dimension of ``size``."""
    low, high = index.bounds()
    if high is not None and high < 0:
        return index + size
    if low is None or low < 0:
        raise NotLowered(f"selection at {index}, which may be negative")
    return index


@rule("select.int")
def select(ctx: Context, x: Node, dim: int, index: Expr | int) -> Node:
    """Lower the selection of one slice to a view."""
    at = wrap(dim, len(x.shape))
    position = selected(x.shape[at], as_expr(index))
    shape = [*x.shape[:at], *x.shape[at + 1 :]]
    return ctx.view(x, shape, lambda i: [*i[:at], position, *i[at:]])


@rule("split.Tensor")
def split(ctx: Context, x: Node, size: Expr | int, dim: int = 0) -> tuple[Node, ...]:
    return split_with_sizes(ctx, x, [s.shape[wrap(dim, len(x.shape))] for s in ctx.value], dim)


@rule("split_with_sizes.default")
def split_with_sizes(ctx: Context, x: Node, sizes: Sequence[Any], dim: int = 0) -> tuple[Node, ...]:
    """Lower a split into parts to views."""
    at = wrap(dim, len(x.shape))
    parts: list[Node] = []
    begin = ZERO
    for size in sizes:
        extent = ctx.size(size)
        parts.append(_part(ctx, x, at, begin, extent))
        begin = begin + extent
    return tuple(parts)


@rule("unbind.int")
def unbind(ctx: Context, x: Node, dim: int = 0) -> tuple[Node, ...]:
    """Lower ``unbind`` to one selection per slice."""
    count = x.shape[wrap(dim, len(x.shape))].as_int()
    if count is None:
        raise NotLowered("unbind of a dimension of unknown size")
    return tuple(select(ctx, x, dim, k) for k in range(count))


@rule("diagonal.default")
def diagonal(ctx: Context, x: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Node:
    """Lower ``diagonal`` to a view whose last coordinate counts along both dimensions."""
    a, b = wrap(dim1, len(x.shape)), wrap(dim2, len(x.shape))
    rest = [k for k in range(len(x.shape)) if k not in (a, b)]

    def coords(index: Sequence[Expr]) -> list[Expr]:
        both = (index[-1] + max(-offset, 0), index[-1] + max(offset, 0))
        return spread_out(len(x.shape), (*rest, a, b), (*index[:-1], *both))

    return ctx.view(x, ctx.sizes(), coords)
