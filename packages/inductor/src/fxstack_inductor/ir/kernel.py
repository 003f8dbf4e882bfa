"""Loop-level IR: one fused kernel, independent of the target.

A kernel runs over ``outer`` loops (independent points, to be spread over threads or blocks) and, inside each
point, ``inner`` loops. ``values`` is a list in static-single-assignment order: an operand is the
position of an earlier value. A ``Reduce`` combines its operand over all inner points into one value
per outer point; what depends on it may be at the outer level or at the inner level again (a further
pass over the inner loops). Values that mention no inner variable live at the outer level. ``stores``
write values to buffers, at their own level.

Addresses are offsets in elements: ``Load.index`` and ``Store.index`` are ``Expr`` over loop variables, sizes, and ``VALUE``
variables named ``v<position>`` for a computed index. Loads of half-precision buffers give float32; stores round.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from fxstack_inductor.ir.attention import Attention
    from fxstack_inductor.ir.expr import Expr, Var


@dataclass(frozen=True, slots=True)
class Loop:
    var: Var
    extent: Expr


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A kernel argument: a pointer to elements of ``dtype``, or, ``by_value``, the bits of one number."""

    name: str
    dtype: torch.dtype
    numel: Expr
    by_value: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    text: str
    """``repr`` of the Python number: keeps -0.0, nan and True apart."""
    dtype: torch.dtype


TRUE, FALSE = Constant("True", torch.bool), Constant("False", torch.bool)


@dataclass(frozen=True, slots=True)
class IndexValue:
    expr: Expr
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Load:
    """``buffer[index]``, or ``other`` (a value) where the value ``mask`` is false, without touching memory there."""

    buffer: str
    index: Expr
    dtype: torch.dtype
    mask: int | None = None
    other: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """The index ``arg``, checked against ``size``; 0 and the error flag set where it is out of range and ``mask`` holds.

    Negative indices count from the end if ``wraps``.
    """

    arg: int
    size: Expr
    dtype: torch.dtype
    mask: int | None = None
    wraps: bool = True


@dataclass(frozen=True, slots=True)
class Compute:
    op: str
    args: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Reduce:
    """``op`` over the inner loops: sum, prod, max, min, any, all; argmax and argmin take (value, position).

    ``dot`` is a sum of products of two values that a target with matrix instructions computes with them.
    """

    op: str
    args: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Scan:
    """``op`` over the inner points up to this one, in their order; the running value has dtype ``state``.

    ``op`` is that of ``ir.ordered.Scan``; argmax and argmin take (value, position).
    """

    op: str
    args: tuple[int, ...]
    dtype: torch.dtype
    state: torch.dtype


Value = Constant | IndexValue | Load | Check | Compute | Reduce | Scan


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[index] = value``, or that of ``op`` (add, mul, max, min) of the old element and ``value``.

    Stores with an ``op`` (``set`` is a plain one) may meet in one element: the inner loops are walked in their order.
    """

    buffer: str
    index: Expr
    value: int
    op: str = ""


@dataclass(frozen=True)
class Kernel:
    """See the module's docstring. ``origins`` are the names of the FX nodes computed here, ``comments`` the users' lines."""

    name: str
    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    values: tuple[Value, ...]
    stores: tuple[Store, ...]
    buffers: tuple[BufferRef, ...]
    sizes: tuple[str, ...]
    origins: tuple[str, ...] = ()
    comments: tuple[str, ...] = ()
    guarded: bool = False
    """Whether nothing may be written once an index was out of range, in this kernel or before it."""
    small: bool = False
    """Whether who launches it sees to it that its index arithmetic fits into 32 bits (``codegen/index_width``)."""
    attention: Attention | None = None
    """What its values are for if it is no nest of loops that a target may order as it likes."""

    @cached_property
    def written(self) -> frozenset[str]:
        return frozenset(store.buffer for store in self.stores)

    @cached_property
    def scatters(self) -> bool:
        return any(store.op for store in self.stores)

    @cached_property
    def product(self) -> int | None:
        """The position of the ``dot`` that the kernel computes, if it does."""
        found = (k for k, v in enumerate(self.values) if isinstance(v, Reduce) and v.op == "dot")
        return next(found, None)

    @cached_property
    def ordered(self) -> bool:
        """Whether the inner loops must run in the order that they are in."""
        return self.scatters or any(isinstance(v, Scan) for v in self.values)

    @cached_property
    def read(self) -> frozenset[str]:
        return frozenset(v.buffer for v in self.values if isinstance(v, Load))

    @cached_property
    def checked(self) -> bool:
        return self.guarded or any(isinstance(v, Check) for v in self.values)


def operands(value: Value) -> tuple[int, ...]:
    """Positions of the values that ``value`` is computed from, through index expressions too."""
    match value:
        case Constant():
            return ()
        case IndexValue(expr):
            return index_operands(expr)
        case Load(_, index, _, mask, other):
            extra = tuple(v for v in (mask, other) if v is not None)
            return index_operands(index) + extra
        case Check(arg, _, _, mask, _):
            return (arg,) if mask is None else (arg, mask)
        case Compute(_, args) | Reduce(_, args) | Scan(_, args):
            return args


def index_variables(value: Value) -> frozenset[Var]:
    """The variables in the index expression that ``value`` has, if it has one."""
    match value:
        case IndexValue(expr) | Load(_, expr):
            return expr.variables
        case _:
            return frozenset()


def index_operands(expr: Expr) -> tuple[int, ...]:
    return tuple(sorted(int(v.name[1:]) for v in expr.variables if v.kind == "value"))
