"""Build one loop-level kernel from a group of tensors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import cast

import torch

from fxstack_inductor.ir.exact_halves import Exact, exact
from fxstack_inductor.ir.expr import ZERO, Expr, Var, as_expr, in_range, recombine, value_var
from fxstack_inductor.ir.expr_forms import contiguous_strides
from fxstack_inductor.ir.kernel import (
    FALSE,
    TRUE,
    BufferRef,
    Check,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    Loop,
    Reduce,
    Store,
    Value,
)
from fxstack_inductor.ir.kernel import Scan as ScanValue
from fxstack_inductor.ir.nodes import (
    Argument,
    Body,
    Call,
    Computed,
    Const,
    Coord,
    Index,
    Indirect,
    Masked,
    Node,
    Pointwise,
    Read,
    Reduction,
    substitution,
    value_dtype,
)
from fxstack_inductor.ir.ordered import Scan, Scatter
from fxstack_inductor.ir.scalar_ops import COMPARISONS, HALF_ROUNDINGS
from fxstack_inductor.schedule.fusion.loop_matching import digits
from fxstack_inductor.schedule.fusion.state import Group, Placement

INT32 = 2**31
"""Exclusive limit of the absolute values that int32 coordinates hold."""
ARG_REDUCTIONS = frozenset({"argmax", "argmin"})
MAX_RECURSIVE = 4
"""Larger groups are evaluated in order, not recursively: a tensor may depend on all others, and Python's
stack is finite.
"""


class Builder:
    """Builds one kernel from the stored tensors back to the loads; equal values are emitted once.

    ``rounds``: values that half precision holds already are rounded, too; the roundings tell templates the dtypes of factors.
    """

    def __init__(self, group: Group, inlined: Collection[Node], *, rounds: bool = True) -> None:
        self.group = group
        self.inlined = inlined
        self.rounds = rounds
        self.values: list[Value] = []
        self.positions: dict[Value, int] = {}
        self.exact: list[Exact] = []
        """The half-precision dtypes that hold a value, by position; for the first values alone (``_exact``)."""
        self.memo: dict[tuple[Node, tuple[Expr | int, ...], int | None], int] = {}
        """Positions of evaluated elements, by tensor, coordinates and mask."""
        self.buffers: dict[str, Node] = {}
        self.stores: list[Store] = []
        self.bodies: dict[tuple[int, int, int | None], tuple[object, object, int]] = {}
        """(identity of body, identity of environment, mask) -> (body, environment, position of the value).

        Bodies may share parts.
        """

    def references(self) -> tuple[BufferRef, ...]:
        """Return the kernel's buffers in the order of first use."""
        return tuple(
            BufferRef(node.name, node.dtype, extent(node), isinstance(node, Argument))
            for node in self.buffers.values()
        )

    def emit(self, value: Value) -> int:
        """Append ``value`` unless an equal value exists; return the position of the value."""
        if value not in self.positions:
            self.positions[value] = len(self.values)
            self.values.append(value)
        return self.positions[value]

    def _exact(self, position: int) -> Exact:
        """Return the half-precision dtypes that hold a value."""
        dtypes = {name: node.dtype for name, node in self.buffers.items()}
        while len(self.exact) <= position:
            self.exact.append(exact(self.values, self.exact, dtypes))
        return self.exact[position]

    def in_order(self) -> None:
        """Evaluate the group's tensors from first to last.

        Large groups need this, because recursion would be too deep.
        """
        for node, placement in self.group.placed.items():
            self.node(node, placement.coords, None)

    def store(self, node: Computed) -> None:
        """Evaluate ``node`` at its coordinates in the group's loops, and add the store of the element."""
        placement = self.group.placed[node]
        if isinstance(node, Scatter):
            self._scatter(node, placement)
            return
        value = self.node(node, placement.coords, None)
        self.buffers[node.name] = node
        self.stores.append(Store(node.name, address(node, placement.coords), value))

    def _scatter(self, node: Scatter, placement: Placement) -> None:
        """Store to the computed coordinates; the loops run over the source elements, not over the result."""
        environment: dict[Var, Expr | int] = dict(substitution(node.reduced, placement.reduced))
        coords = [self._coord(coord, environment, None) for coord in node.target]
        value = self.body(node.body, environment, None)
        self.buffers[node.name] = node
        self.stores.append(Store(node.name, self._address(node, coords), value, node.op))

    # --- evaluation -----------------------------------------------------------------------------------

    def node(self, node: Node, coords: Sequence[Expr | int], mask: int | None) -> int:
        """Return the position of an element's value; an ``int`` coordinate is the position of a computed index.

        An element that certainly exists needs no mask. Otherwise a chain of writes would evaluate a tensor
        once for each combination of masks.
        """
        if mask is not None and _exists(node, coords):
            mask = None
        key = (node, tuple(coords), mask)
        if key not in self.memo:
            self.memo[key] = self._node(node, key[1], mask)
        return self.memo[key]

    def _node(self, node: Node, coords: tuple[Expr | int, ...], mask: int | None) -> int:
        """Evaluate a tensor of the group or an inlined tensor; load the element of any other tensor."""
        placement = self.group.placed.get(node)  # type: ignore[call-overload]
        if isinstance(node, Pointwise) and (placement is not None or node in self.inlined):
            return self.body(node.body, substitution(node.index, coords), mask)
        if isinstance(node, Scan) and placement is not None:
            return self._scan(node, placement)
        if placement is not None:
            return self._reduce(cast("Reduction", node), placement)
        self.buffers[node.name] = node
        index = self._address(node, coords)
        dtype = value_dtype(node.dtype)
        other = None if mask is None else self.emit(Constant("0", dtype))
        return self.emit(Load(node.name, index, dtype, mask, other))

    def _address(self, node: Node, coords: Sequence[Expr | int]) -> Expr:
        """Return the memory offset of an element; a computed coordinate is the variable of its value."""
        return address(node, [c if isinstance(c, Expr) else value_var(f"v{c}") for c in coords])

    def _reduce(self, node: Reduction, placement: Placement) -> int:
        """Emit a reduction over the inner loops; an arg-reduction also needs the position of each element."""
        index, coords = (*node.index, *node.reduced), (*placement.coords, *placement.reduced)
        environment: dict[Var, Expr | int] = dict(substitution(index, coords))
        value = self.body(node.body, environment, None)
        dtype = value_dtype(node.dtype)
        if not any(e.variables for e in placement.reduced):
            # One element: there is nothing to combine.
            single = node.op in ARG_REDUCTIONS
            return self.emit(IndexValue(ZERO, torch.int64)) if single else value
        if node.op not in ARG_REDUCTIONS:
            return self.emit(Reduce(node.op, (value,), dtype))
        strides = contiguous_strides(node.ranges)
        flat = sum((e * s for e, s in zip(placement.reduced, strides, strict=True)), ZERO)
        position = self.emit(IndexValue(flat, torch.int64))
        return self.emit(Reduce(node.op, (value, position), torch.int64))

    def _scan(self, node: Scan, placement: Placement) -> int:
        """Emit a scan along the inner loop, and return its position."""
        environment: dict[Var, Expr | int] = dict(substitution(node.index, placement.coords))
        along = placement.coords[node.axis]
        if node.combine is not None:
            assert isinstance(node.body, Call)
            args = tuple(self.body(part, environment, None) for part in node.body.args)
            if not along.variables:
                return args[node.part]
            dtype = value_dtype(node.dtype)
            return self.emit(ScanValue(node.op, args, dtype, node.state, node.combine, node.part))
        value = self.body(node.body, environment, None)
        dtype, positional = value_dtype(node.dtype), node.op in ARG_REDUCTIONS
        if not along.variables:
            # One element: there is no previous element.
            return self.emit(IndexValue(ZERO, torch.int64)) if positional else value
        args = (value, self.emit(IndexValue(along, torch.int64))) if positional else (value,)
        return self.emit(ScanValue(node.op, args, dtype, node.state))

    def body(self, body: Body, environment: dict[Var, Expr | int], mask: int | None) -> int:
        """Return the position of the value of ``body``; ``environment``: its variables in the group's loops."""
        key = (id(body), id(environment), mask)
        if key not in self.bodies:
            self.bodies[key] = (body, environment, self._body(body, environment, mask))
        return self.bodies[key][2]

    def _body(self, body: Body, environment: dict[Var, Expr | int], mask: int | None) -> int:
        """Evaluate a body that ``bodies`` does not have yet."""
        match body:
            case Const(value, dtype):
                return self.emit(Constant(repr(value), dtype))
            case Index(expr, dtype):
                return self.emit(IndexValue(self._index(expr, environment), dtype))
            case Call(op, args, dtype):
                operands = tuple(self.body(arg, environment, mask) for arg in args)
                return self._compute(op, operands, dtype)
            case Read(node, coords):
                moved = [self._coord(c, environment, mask) for c in coords]
                return self.node(node, moved, mask)
            case Masked(condition, inner, other):
                return self._masked(condition, inner, other, environment, mask)

    def _compute(self, op: str, args: tuple[int, ...], dtype: torch.dtype) -> int:
        """Emit an operation and return its position; comparisons of small coordinates use int32.

        A selection of True or False by a condition is the condition. A value that a dtype holds need not be rounded.
        """
        values = [self.values[k] for k in args]
        if not self.rounds and op in HALF_ROUNDINGS and HALF_ROUNDINGS[op] in self._exact(args[0]):
            return args[0]
        if op == "where" and values[1:] == [TRUE, FALSE]:
            return args[0]
        if op in COMPARISONS and all(_is_narrow(value) for value in values):
            # Twice as many int32 coordinates fit into a vector; their masks have the width of float masks.
            args = tuple(self.emit(replace(v, dtype=torch.int32)) for v in values)
        return self.emit(Compute(op, args, dtype))

    def _masked(
        self, condition: Body, inner: Body, other: Const, environment: dict[Var, Expr | int], mask: int | None
    ) -> int:
        """Emit ``inner``, whose loads happen only where ``condition`` and ``mask`` hold, else ``other``."""
        holds = self.body(condition, environment, mask)
        both = holds
        if mask is not None:
            both = self.emit(Compute("bitwise_and", (mask, holds), torch.bool))
        value = self.body(inner, environment, both)
        default = self.emit(Constant(repr(other.value), other.dtype))
        return self.emit(Compute("where", (holds, value, default), inner.dtype))

    def _coord(self, coord: Coord, environment: dict[Var, Expr | int], mask: int | None) -> Expr | int:
        """Return a coordinate in group variables, or the position of a computed index, with a check if needed."""
        if isinstance(coord, Indirect):
            index = self.body(coord.body, environment, mask)
            value = self.values[index]
            size = self._index(coord.size, {})
            if isinstance(value, IndexValue) and in_range(value.expr, size):
                return value.expr  # in range, so no check; loop passes can analyse the expression
            if coord.known:
                return as_expr(int(value.text)) if isinstance(value, Constant) else index
            return self.emit(Check(index, size, torch.int64, mask, coord.wraps))
        var = coord.as_var()
        if var is not None and var in environment:
            return environment[var]
        return self._index(coord, environment)

    def _index(self, expr: Expr, environment: dict[Var, Expr | int]) -> Expr:
        """Return ``expr`` in the variables of the group's loops."""
        mapping = {
            var: value if isinstance(value, Expr) else value_var(f"v{value}")
            for var, value in environment.items()
        }
        return expr.subs(mapping)


def _is_narrow(value: Value) -> bool:
    """Whether a coordinate or number fits into 32 bits."""
    match value:
        case IndexValue(expr, torch.int64):
            low, high = expr.bounds()
            return low is not None and high is not None and low > -INT32 and high < INT32
        case Constant(text, torch.int64):
            return -INT32 < int(text) < INT32
        case _:
            return False


def _exists(node: Node, coords: Sequence[Expr | int]) -> bool:
    """Whether the coordinates are certainly inside the tensor."""
    return all(
        isinstance(coord, Expr) and in_range(coord, size)
        for coord, size in zip(coords, node.shape, strict=True)
    )


def address(node: Node, coords: Sequence[Expr]) -> Expr:
    """Return the memory offset, in elements, of an element of ``node``."""
    return recombine(sum((c * s for c, s in zip(coords, node.layout.stride, strict=True)), ZERO))


def build_kernel(
    number: int, group: Group, stored: Sequence[Computed], inlined: Collection[Node], *, rounds: bool
) -> Kernel:
    """Return the kernel that computes ``group`` (tensors in the graph's order) and stores ``stored``.

    ``rounds``: as in ``Builder``.
    """
    builder = Builder(group, inlined, rounds=rounds)
    if len(group.placed) > MAX_RECURSIVE:
        builder.in_order()
    for node in stored:
        builder.store(node)
    inner = group.inner or frozenset()
    outer_loops = [_loop(v) for v in group.space if v not in inner]
    inner_loops = [_loop(v) for v in _in_order(group) if v in inner]
    return Kernel(
        name=f"kernel_{number}",
        outer=tuple(outer_loops),
        inner=tuple(inner_loops),
        values=tuple(builder.values),
        stores=tuple(builder.stores),
        buffers=builder.references(),
        sizes=(),
        origins=tuple(dict.fromkeys(n.origin for n in group.placed)),
        comments=tuple(dict.fromkeys(n.comment for n in group.placed if n.comment)),
        template=next((n.template for n in group.placed if isinstance(n, Reduction) and n.template), ""),
    )


def _in_order(group: Group) -> list[Var]:
    """Return the loop variables; the variables along a scan come last, from highest digit to lowest."""
    for node, placement in group.placed.items():
        if isinstance(node, Scan):
            along = (digits(placement.coords[node.axis]) or [])[::-1]
            return [*(v for v in group.space if v not in along), *along]
    return group.space


def extent(node: Node) -> Expr:
    """Return the number of memory elements from the first element of ``node`` to the last."""
    if any(size == 0 for size in node.shape):
        return ZERO
    spans = ((s - 1) * t for s, t in zip(node.shape, node.layout.stride, strict=True))
    return sum(spans, ZERO) + 1


def _loop(var: Var) -> Loop:
    """Return a loop over a variable's whole extent."""
    return Loop(var, var.extent or ZERO)
