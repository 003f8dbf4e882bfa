"""Tensor-level IR: the result of lowering an ATen graph.

Each node stands for one tensor. ``Pointwise`` and ``Reduction`` describe one element by a small expression
(``Body``) over the element's coordinates ``i0, i1, ...`` and the reduced coordinates ``r0, ...``. ``View``
renames the coordinates of its base. ``Extern`` is the result of an ATen call. Coordinates are logical (one
per dimension); memory layout matters only when a kernel is built. Elements of half-precision tensors are
float32 inside bodies (``value_dtype``); a value is rounded when its tensor is stored and where a body has an
explicit ``round`` operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import torch

from fxstack_inductor.ir.expr import ZERO, Expr, Var, as_expr, loop_var, product
from fxstack_inductor.ir.expr_forms import contiguous_strides

T = TypeVar("T")
Shape = tuple[Expr, ...]
Scalar = bool | int | float

HALF_DTYPES = (torch.bfloat16, torch.float16)
FLOAT8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
"""8-bit floats, which some targets can load and store."""


def value_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of an element in registers."""
    return torch.float32 if dtype in {*HALF_DTYPES, *FLOAT8_DTYPES} else dtype


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape, strides (in elements), dtype and device of a tensor."""

    shape: Shape
    stride: Shape
    dtype: torch.dtype
    device: torch.device

    @property
    def numel(self) -> Expr:
        """The number of elements."""
        return product(self.shape)

    @property
    def order(self) -> list[int]:
        """The dimensions in the order of memory, the slowest first; as they are if a stride is known at run time only."""
        strides = [stride.as_int() for stride in self.stride]
        known = [stride for stride in strides if stride is not None]
        dims = range(len(strides))
        return sorted(dims, key=lambda dim: -known[dim]) if len(known) == len(strides) else list(dims)


def contiguous_layout(shape: Sequence[Expr | int], dtype: torch.dtype, device: torch.device) -> Layout:
    """Return the layout of a dense tensor in row-major order."""
    sizes = tuple(as_expr(size) for size in shape)
    return Layout(sizes, contiguous_strides(sizes), dtype, device)


# --- bodies -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Const:
    """A number in an expression of one element."""

    value: Scalar
    dtype: torch.dtype
    """The dtype in registers."""


@dataclass(frozen=True, slots=True)
class Index:
    """A coordinate or size as a value."""

    expr: Expr
    dtype: torch.dtype = torch.int64


@dataclass(frozen=True, slots=True)
class Indirect:
    """A coordinate that the kernel computes, within ``size``; with ``wraps``, negative values count from the end."""

    body: Body
    """The expression of the coordinate, an int64."""
    size: Expr
    wraps: bool = True
    known: bool = False
    """Whether the coordinate is certain to be in range, so that the kernel does not check it."""


Coord = Expr | Indirect


@dataclass(frozen=True, slots=True)
class Read:
    """One element of ``node``; its value has ``value_dtype(node.dtype)``."""

    node: Node
    coords: tuple[Coord, ...]
    """One coordinate per dimension of ``node``."""

    @property
    def dtype(self) -> torch.dtype:
        return value_dtype(self.node.dtype)


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar operation, named as in ``ir.scalar_ops``."""

    op: str
    args: tuple[Body, ...]
    dtype: torch.dtype
    """The dtype of the result, in registers."""


@dataclass(frozen=True, slots=True)
class Masked:
    """``body`` where ``mask`` is true, else ``other``; where ``mask`` is false, ``body`` reads nothing."""

    mask: Body
    body: Body
    other: Const

    @property
    def dtype(self) -> torch.dtype:
        return self.body.dtype


Body = Const | Index | Read | Call | Masked


def children(body: Body) -> Iterator[Body]:
    """Yield the direct parts of ``body``, including the bodies of computed coordinates."""
    match body:
        case Call(_, args, _):
            yield from args
        case Masked(mask, inner, other):
            yield from (mask, inner, other)
        case Read(_, coords):
            yield from (coord.body for coord in coords if isinstance(coord, Indirect))
        case Const() | Index():
            return


def walk(body: Body, parts: Callable[[Body], Iterable[Body]] = children) -> Iterator[Body]:
    """Yield every part of ``body`` that ``parts`` leads to; a shared part is yielded once."""
    seen: set[int] = set()
    stack = [body]
    while stack:
        part = stack.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            stack.extend(reversed(tuple(parts(part))))


def substituted(body: Body, mapping: Mapping[Var, Expr]) -> Body:
    """Return ``body`` with variables replaced in all coordinates."""
    match body:
        case Const():
            return body
        case Index(expr, dtype):
            return Index(expr.subs(mapping), dtype)
        case Call(op, args, dtype):
            return Call(op, tuple(substituted(arg, mapping) for arg in args), dtype)
        case Masked(mask, inner, other):
            return Masked(substituted(mask, mapping), substituted(inner, mapping), other)
        case Read(node, coords):
            return Read(
                node,
                tuple(
                    replace(c, body=substituted(c.body, mapping))
                    if isinstance(c, Indirect)
                    else c.subs(mapping)
                    for c in coords
                ),
            )


# --- nodes --------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class Node:
    """One tensor. ``origin`` is the name of its FX node, ``comment`` the user's line."""

    name: str
    layout: Layout
    origin: str = ""
    comment: str = ""

    @property
    def shape(self) -> Shape:
        return self.layout.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.layout.dtype

    @property
    def device(self) -> torch.device:
        return self.layout.device

    @cached_property
    def index(self) -> tuple[Expr, ...]:
        """The loop variables ``i0, i1, ...`` over the node's elements."""
        return tuple(loop_var(f"i{k}", size) for k, size in enumerate(self.shape))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


@dataclass(eq=False, kw_only=True, repr=False)
class Input(Node):
    """A placeholder or constant of the graph. ``delta`` is its storage offset in elements."""

    delta: Expr = ZERO
    """The storage offset in elements."""


@dataclass(eq=False, kw_only=True, repr=False)
class Extern(Node):
    """A tensor in the result of an ATen call, at ``path``; only a ``strided`` tensor has strides."""

    call: ExternCall
    path: tuple[int, ...] = ()
    strided: bool = True


@dataclass(eq=False, kw_only=True, repr=False)
class Argument(Extern):
    """A host number that GPU kernels take by value, as the bits of a 64-bit number; it has no memory."""


@dataclass(eq=False, kw_only=True, repr=False)
class View(Node):
    """The same elements under other coordinates: element ``i0, i1, ...`` is ``base[coords]``."""

    base: Node
    coords: tuple[Expr, ...]
    """Coordinates in ``base``, as expressions of the view's own ``index``."""
    window: tuple[Layout, Layout, tuple[Node, Expr] | None] | None = field(default=None, init=False)
    """The last result of ``lower.layouts.strided_view``, and the layouts of view and base that it holds for."""

    @property
    def memory(self) -> Node:
        """The tensor behind all views."""
        node: Node = self
        while isinstance(node, View):
            node = node.base
        return node


@dataclass(eq=False, kw_only=True, repr=False)
class Computed(Node):
    """A tensor that kernels of this package compute, by an expression of one element."""

    body: Body
    """The expression of the element at ``index``."""

    @property
    def parts(self) -> Iterator[Body]:
        """Every part of the expressions that compute an element."""
        return walk(self.body)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The elements that the expressions read, each once."""
        return tuple(dict.fromkeys(b for b in self.parts if isinstance(b, Read)))


@dataclass(eq=False, kw_only=True, repr=False)
class Pointwise(Computed):
    """Element ``i0, i1, ...`` is ``body``."""


@dataclass(eq=False, kw_only=True, repr=False)
class Reduction(Computed):
    """Element ``i0, i1, ...`` is ``op`` of ``body`` over ``r0, r1, ...`` in ``ranges``.

    An arg-reduction gives the ``position`` of the extreme element in place of its value.
    """

    op: str
    ranges: Shape
    template: str = ""
    """The template whose kernel computes the reduction; empty for a plain nest of loops."""

    @cached_property
    def reduced(self) -> tuple[Expr, ...]:
        """The loop variables ``r0, r1, ...``."""
        return tuple(loop_var(f"r{k}", size) for k, size in enumerate(self.ranges))

    @cached_property
    def position(self) -> Expr:
        """The flat position within the reduced coordinates."""
        strides = contiguous_strides(self.ranges)
        return sum((r * s for r, s in zip(self.reduced, strides, strict=True)), ZERO)


@dataclass(eq=False, slots=True)
class ExternCall:
    """A call that the host makes. ``args`` and ``kwargs`` hold nodes, ``Expr`` for sizes, and constants.

    ``reads``: the tensors it reads. ``effect``: it must keep its order among effects (random numbers,
    mutation, printing). ``alias``: its result may share memory with an argument.
    """

    name: str
    target: Any
    """An ATen overload, or another Python callable."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reads: tuple[Node, ...]
    """Tensors among the arguments."""
    effect: bool = False
    alias: bool = False
    comment: str = ""
    """The user's line, for comments in generated code."""
    origin: str = ""
    """The name of the captured node that the call comes from."""
    outputs: list[Extern] = field(default_factory=list)
    """The tensors among the results, in order; filled while the call is lowered."""
    numbers: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    """Names of the numbers among the results, with their paths in the result."""


def substitution(index: Iterable[Expr], values: Iterable[T]) -> dict[Var, T]:
    """Return variable -> value for the coordinates ``index``. Constant coordinates are left out."""
    pairs = zip(index, values, strict=True)
    return {var: value for coord, value in pairs if (var := coord.as_var()) is not None}


def resolve(node: Node, coords: Sequence[Coord]) -> tuple[Node, tuple[Coord, ...]]:
    """Return the tensor behind views, and the coordinates in that tensor."""
    current, position = node, tuple(coords)
    while isinstance(current, View):
        index = [expr.as_var() for expr in current.index]
        if any(isinstance(coord, Indirect) for coord in position):
            moved = _through_indirect(current, position)
            if moved is None:
                return current, position
            position = moved
        else:
            mapping = {v: c for v, c in zip(index, position, strict=True) if v is not None}
            position = tuple(expr.subs(mapping) for expr in current.coords)  # type: ignore[arg-type]
        current = current.base
    return current, position


def _through_indirect(view: View, coords: tuple[Coord, ...]) -> tuple[Coord, ...] | None:
    """Move computed coordinates through a view; return None if that is impossible.

    The view may only permute, fix or drop dimensions. A dropped computed coordinate would never be checked,
    so it must be known.
    """
    by_var = {e.as_var(): c for e, c in zip(view.index, coords, strict=True) if e.as_var()}
    plain = {v: c for v, c in by_var.items() if isinstance(v, Var) and isinstance(c, Expr)}
    moved: list[Coord] = []
    for expr in view.coords:
        var = expr.as_var()
        if var is not None and var in by_var:
            moved.append(by_var[var])
        elif all(v in plain or v not in by_var for v in expr.variables):
            moved.append(expr.subs(plain))
        else:
            return None
    lost = [c for c in coords if isinstance(c, Indirect) and not c.known and c not in moved]
    return None if lost else tuple(moved)
