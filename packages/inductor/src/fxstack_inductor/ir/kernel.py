"""Loop-level IR: one fused kernel, independent of the target.

A kernel runs over ``outer`` loops (independent points, spread over threads or blocks) and, inside each point,
``inner`` loops. ``values`` is a list in static single assignment order: an operand is the position of an
earlier value. ``Reduce`` combines its operand over all inner points into one value per outer point. A value
that uses the result may be at the outer level. It may also be at the inner level, in a further pass over the
inner loops. Values without inner variables are at the outer level. ``stores`` write values to buffers, at the
level of the value.

Addresses are offsets in elements: ``Load.index`` and ``Store.index`` are ``Expr`` over loop variables, sizes,
and ``VALUE`` variables named ``v<position>`` for a computed index. Loads of half-precision buffers give
float32; stores round.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from types import MappingProxyType
from typing import TypeVar, cast

import torch

from fxstack_inductor.ir.expr import Expr, Var
from fxstack_inductor.ir.nodes import HALF_DTYPES

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of ``var`` from 0 to ``extent``."""

    var: Var
    extent: Expr


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A kernel argument: a pointer to elements of ``dtype``, or (``by_value``) the bits of one number."""

    name: str
    dtype: torch.dtype
    numel: Expr
    """Number of elements of memory from the first element to the last."""
    by_value: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """A number as a value of the kernel."""

    text: str
    """``repr`` of the Python number; distinguishes -0.0, nan and True."""
    dtype: torch.dtype


TRUE, FALSE = Constant("True", torch.bool), Constant("False", torch.bool)


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index expression as a value, e.g. the coordinate in a comparison with a size."""

    expr: Expr
    dtype: torch.dtype
    """An integer dtype: int64, or int32 where this is enough."""


@dataclass(frozen=True, slots=True)
class Load:
    """``buffer[index]``. Where the value ``mask`` is false, it is the value ``other``, without a memory access."""

    buffer: str
    index: Expr
    """The offset in elements."""
    dtype: torch.dtype
    """The dtype of the value in registers: float32 for half precision."""
    mask: int | None = None
    """The position of a boolean value; None: load always."""
    other: int | None = None
    """The position of the value where ``mask`` is false; None without mask."""


@dataclass(frozen=True, slots=True)
class Check:
    """The index ``arg`` after a range check. If ``arg`` is out of range of ``size``, set the error flag and use 0.

    Where the value ``mask`` is false, nothing is checked. With ``wraps``, negative indices count from the
    end.
    """

    arg: int
    size: Expr
    dtype: torch.dtype
    mask: int | None = None
    wraps: bool = True
    """Whether negative indices count from the end."""
    done: bool = False
    """Whether an earlier kernel has found the index in range (``schedule.check_first``)."""


@dataclass(frozen=True, slots=True)
class Compute:
    """A scalar operation of ``ir.scalar_ops`` on values of one point."""

    op: str
    args: tuple[int, ...]
    """Positions of the operands."""
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Reduce:
    """``op`` over the inner loops: sum, prod, max, min, any, all; argmax and argmin take (value, position).

    ``dot`` is a sum of products of two values; a target with matrix instructions computes it with these. The operations
    in ``CENTRED`` take (value, centre), where the centre is an outer value that the same pass makes available.
    """

    op: str
    args: tuple[int, ...]
    """Positions of the operands."""
    dtype: torch.dtype


CENTRED = MappingProxyType({"expsum": "max", "squares": "sum", "differences": "sum"})
"""Sums of ``exp(value - centre)``, ``(value - centre) ** 2`` and ``value - centre``, whose centre depends on a reduction of
the same value.

Each has the operation of that reduction, which the same pass computes. ``tiling.one_pass`` makes them, for Triton.
"""


@dataclass(frozen=True, slots=True)
class Combine:
    """An associative function of two tuples of ``count`` numbers, for a scan of ``count`` values at once."""

    values: tuple[Constant | Compute, ...]
    """The first of ``values`` has position ``2 * count``, behind the left and the right operands."""
    results: tuple[int, ...]
    """Positions of the results."""

    @property
    def count(self) -> int:
        return len(self.results)


@dataclass(frozen=True, slots=True)
class Scan:
    """``op`` over the inner points from the first to the current point; the running value has dtype ``state``.

    ``op`` is an operation of ``ir.ordered.Scan``; argmax and argmin take (value, position), and ``combine`` takes the
    values of the function ``combine``, of which the scan is result ``part``.
    """

    op: str
    args: tuple[int, ...]
    """Positions of the operands."""
    dtype: torch.dtype
    state: torch.dtype
    combine: Combine | None = None
    part: int = 0


Value = Constant | IndexValue | Load | Check | Compute | Reduce | Scan


@dataclass(frozen=True, slots=True)
class Store:
    """Write ``value`` to ``buffer[index]``, or with ``op`` (add, mul, max, min) ``op`` of the old element and
    ``value``.

    The ``op`` ``set`` overwrites the element. Stores with an ``op`` may write one element repeatedly, so the
    inner loops run in order.
    """

    buffer: str
    index: Expr
    """The offset in elements."""
    value: int
    """The position of the value."""
    op: str = ""
    """The operation of a scatter; empty for a plain store."""


@dataclass(frozen=True)
class Kernel:
    """A fused loop nest, as the module's docstring describes. ``origins``: names of FX nodes; ``comments``: user lines."""

    name: str
    """The name in the schedule, ``kernel_`` and a number."""
    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    values: tuple[Value, ...]
    stores: tuple[Store, ...]
    buffers: tuple[BufferRef, ...]
    sizes: tuple[str, ...]
    """Names of the symbolic sizes that the kernel takes as arguments."""
    origins: tuple[str, ...] = ()
    comments: tuple[str, ...] = ()
    """The user's lines, for comments in generated code and for the errors of ``nan_asserts``."""
    guarded: bool = False
    """Whether the kernel must not write after an index was out of range, in this kernel or in an earlier kernel."""
    small: bool = False
    """Whether the launcher ensures that index arithmetic fits into 32 bits (``schedule.int32_indexing``)."""
    template: str = ""
    """The name of the template (``templates``) that writes the kernel; empty for a plain nest of loops."""
    roles: object = None
    """A record of a template about the values. The loops of a kernel with such a record must stay as they are."""
    rows: int = 0
    """The number of outer points that one program computes one after the other; 0: the tiling chooses.

    Then the points of a program, and no others, add to the elements of a store with the ``op`` ``add``, which have no old
    value (``schedule.column_sums``).
    """
    parts: tuple[Kernel, ...] = ()
    """Independent kernels that one launch runs side by side; a kernel with parts has no loops and values itself."""

    @cached_property
    def title(self) -> str:
        """The name in profiles: the computed operators, and the kernel's number in its graph."""
        operators = dict.fromkeys(re.sub(r"(_\d+)+$", "", origin) for origin in self.origins)
        return f"fused_{'_'.join(operators)[:80]}{self.name.removeprefix('kernel')}"

    @cached_property
    def written(self) -> frozenset[str]:
        """Names of the buffers that the kernel stores to."""
        own = (store.buffer for store in self.stores)
        return frozenset(own).union(*(part.written for part in self.parts))

    @cached_property
    def scatters(self) -> bool:
        """Whether several points may store to one element."""
        return any(store.op for store in self.stores)

    def reduction(self, position: int) -> Reduce:
        """Return the reduction at ``position``."""
        value = self.values[position]
        assert isinstance(value, Reduce)
        return value

    @cached_property
    def ordered(self) -> bool:
        """Whether the inner loops must run in their given order."""
        return self.scatters or any(isinstance(v, Scan) for v in self.values)

    @cached_property
    def read(self) -> frozenset[str]:
        """Names of the buffers from which the kernel loads."""
        own = (v.buffer for v in self.values if isinstance(v, Load))
        return frozenset(own).union(*(part.read for part in self.parts))

    @cached_property
    def repeatable(self) -> bool:
        """Whether a point may be computed twice: no store combines, and no load reads what the kernel writes."""
        return not self.scatters and self.read.isdisjoint(self.written)

    @cached_property
    def copied(self) -> frozenset[Store]:
        """The stores that copy half-precision numbers as bits: conversion is slower and changes the bits of NaN."""
        dtypes = {ref.name: ref.dtype for ref in self.buffers}
        return frozenset(
            store
            for store in self.stores
            if isinstance(value := self.values[store.value], Load) and value.buffer not in self.written
            if dtypes[value.buffer] is dtypes[store.buffer] and dtypes[store.buffer] in HALF_DTYPES
            if store.op in {"", "set"}
        )

    @cached_property
    def checked(self) -> bool:
        """Whether the kernel takes the error flag as an argument: it checks indices, or stops after a bad one."""
        return self.guarded or any(isinstance(v, Check) and not v.done for v in self.values)

    @cached_property
    def only_checks(self) -> bool:
        """Whether the kernel writes nothing and only checks indices, for kernels that follow."""
        return self.checked and not self.stores and not self.parts


def once_per_kernel(function: Callable[[Kernel], T]) -> Callable[[Kernel], T]:
    """Return ``function``, which keeps its results in the kernels: code generators ask for the same facts several times."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def kept(kernel: Kernel) -> T:
        known = kernel.__dict__
        if name not in known:
            known[name] = function(kernel)
        return cast("T", known[name])

    return kept


def form_of(kernel: Kernel) -> Hashable | None:
    """Return all of a kernel except for names: kernels of equal forms have equal code. None for kernels of templates."""
    if kernel.parts or kernel.template or kernel.roles is not None:
        return None
    place = {ref.name: number for number, ref in enumerate(kernel.buffers)}
    values = tuple(
        [
            (place[v.buffer], v.index, v.dtype, v.mask, v.other) if isinstance(v, Load) else v
            for v in kernel.values
        ]
    )
    stores = tuple([(place[s.buffer], s.index, s.value, s.op) for s in kernel.stores])
    buffers = tuple([(ref.dtype, ref.numel, ref.by_value) for ref in kernel.buffers])
    flags = (kernel.guarded, kernel.small, kernel.rows)
    return kernel.outer, kernel.inner, values, stores, buffers, kernel.sizes, flags


def operands(value: Value) -> tuple[int, ...]:
    """Return the positions of the operands of ``value``, including operands inside index expressions."""
    match value:
        case Constant():
            return ()
        case IndexValue(expr):
            return index_operands(expr)
        case Load(_, index, _, mask, other):
            extra = tuple(v for v in (mask, other) if v is not None)
            return index_operands(index) + extra
        case Check(arg, _, _, mask):
            return (arg,) if mask is None else (arg, mask)
        case Compute(_, args) | Reduce(_, args) | Scan(_, args):
            return args


def expressions(value: Value) -> tuple[Expr, ...]:
    """Return the index expression or size in ``value``, if there is one."""
    match value:
        case IndexValue(expr) | Load(_, expr) | Check(_, expr):
            return (expr,)
        case _:
            return ()


def with_expressions(value: Value, change: Callable[[Expr], Expr]) -> Value:
    """Return ``value`` with its index expression or size changed."""
    match value:
        case IndexValue(expr):
            return replace(value, expr=change(expr))
        case Load(_, index):
            return replace(value, index=change(index))
        case Check(_, size):
            return replace(value, size=change(size))
        case _:
            return value


def with_operands(value: Value, places: Sequence[int] | Mapping[int, int]) -> Value:
    """Return ``value`` with ``places[k]`` in place of each operand ``k``; operands inside index expressions stay."""
    match value:
        case Load(_, _, _, mask, other):
            return replace(value, mask=_moved(mask, places), other=_moved(other, places))
        case Check(arg, _, _, mask):
            return replace(value, arg=places[arg], mask=_moved(mask, places))
        case Compute(_, args) | Reduce(_, args) | Scan(_, args):
            return replace(value, args=tuple(places[k] for k in args))
        case _:
            return value


def _moved(position: int | None, places: Sequence[int] | Mapping[int, int]) -> int | None:
    return None if position is None else places[position]


def index_variables(value: Value) -> frozenset[Var]:
    """Return the variables of the index expression or size in ``value``, if there is one."""
    return frozenset(var for expr in expressions(value) for var in expr.variables)


def index_operands(expr: Expr) -> tuple[int, ...]:
    """Return the positions of the values that an index expression uses."""
    return tuple(sorted(int(v.name[1:]) for v in expr.variables if v.kind == "value"))
