"""The tools of a lowering rule: ``Context`` makes nodes; functions read elements and broadcast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import ZERO, Expr, as_expr, product
from fxstack_inductor.ir.kernel import Combine
from fxstack_inductor.ir.nodes import (
    Argument,
    Body,
    Call,
    Const,
    Coord,
    ExternCall,
    Index,
    Indirect,
    Layout,
    Node,
    Pointwise,
    Read,
    Reduction,
    Scalar,
    View,
    contiguous_layout,
    resolve,
    value_dtype,
)
from fxstack_inductor.ir.ordered import PERSISTENT, Scan, Scatter
from fxstack_inductor.ir.scalar_ops import ROUNDINGS
from fxstack_inductor.lower.host.symbols import size_expr
from fxstack_inductor.lower.target import CPU_KERNELS, KernelTarget
from fxstack_inductor.options import InductorOptions


@dataclass(frozen=True, slots=True)
class HostScalar:
    """A float that the host computes at run time (e.g. a step size), in the 0-d float64 ``tensor``."""

    tensor: Node


TensorOrScalar = Node | bool | int | float | Expr | HostScalar
"""An operand: a tensor, a number, a symbolic integer, or a number that the host computes."""


@dataclass
class Context:
    """State of one lowering, the first argument of every rule. ``current`` and ``comment`` describe the FX node."""

    options: InductorOptions
    target: KernelTarget = CPU_KERNELS
    """The facts about the processor for which kernels are made."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """The device of the node's tensors, where its results are made."""
    nodes: list[Node | ExternCall] = field(default_factory=list)
    """The IR nodes and calls that rules have made so far, in order."""
    current: str = ""
    """Name of the FX node; the names of the made IR nodes begin with the name."""
    comment: str = ""
    """The user's line, for comments in generated code."""
    value: Any = None
    """The fake value (``meta["val"]``) of the FX node being lowered."""
    rounded: frozenset[str] = frozenset()
    """Names of FX nodes whose half-precision results must be rounded (``lower.rounded``)."""

    def size(self, value: object) -> Expr:
        """Return an int, SymInt or ``Expr`` as an ``Expr``."""
        return value if isinstance(value, Expr) else size_expr(value)

    def sizes(self) -> tuple[Expr, ...]:
        """Return the shape of the current FX node's value."""
        return tuple(self.size(size) for size in self.value.shape)

    def common(self, layout: Layout) -> dict[str, Any]:
        """Return the fields that every node of the current FX node has."""
        name = f"{self.current}__{len(self.nodes)}"
        return {"name": name, "layout": layout, "origin": self.current, "comment": self.comment}

    def pointwise(
        self, shape: Sequence[Expr], dtype: torch.dtype, make_body: Callable[[tuple[Expr, ...]], Body]
    ) -> Pointwise:
        """Make a tensor of ``dtype`` whose element at some coordinates is ``make_body(coordinates)``."""
        layout = contiguous_layout(shape, dtype, self.device)
        node = Pointwise(**self.common(layout), body=Const(0, value_dtype(dtype)))
        node.body = make_body(node.index)
        if node.body.dtype != value_dtype(dtype):
            node.body = cast(node.body, value_dtype(dtype))
        rounds = self.options.eager_rounding or self.current in self.rounded or isinstance(node.body, Const)
        if rounds and dtype != value_dtype(dtype):
            node.body = round_to(node.body, dtype)
        self.nodes.append(node)
        return node

    def reduction(
        self,
        op: str,
        shape: Sequence[Expr],
        ranges: Sequence[Expr],
        dtype: torch.dtype,
        make_body: Callable[[tuple[Expr, ...], tuple[Expr, ...]], Body],
    ) -> Reduction:
        """Make the reduction by ``op`` of ``make_body(coordinates, reduced coordinates)`` over ``ranges``."""
        layout = contiguous_layout(shape, dtype, self.device)
        placeholder = Const(0, value_dtype(dtype))
        node = Reduction(**self.common(layout), body=placeholder, op=op, ranges=tuple(ranges))
        if ZERO not in ranges:  # an empty reduction reads no element
            node.body = make_body(node.index, node.reduced)
        self.nodes.append(node)
        return node

    def scatter(
        self,
        op: str,
        init: Pointwise,
        ranges: Sequence[Expr],
        make: Callable[[tuple[Expr, ...]], tuple[Sequence[Coord], Body]],
    ) -> Scatter:
        """Make a scatter: ``op`` combines elements of ``init`` with values, for each point of ``ranges``.

        ``make`` returns the coordinates and the value of a point. No other node may read ``init``, because
        the scatter changes the memory of ``init``.
        """
        if self.target.many_threads:
            _require_atomics(op, init.dtype)
        node = Scatter(
            **self.common(init.layout), body=init.body, init=init, ranges=tuple(ranges), target=(), op=op
        )
        target, body = make(node.reduced)
        node.target, node.body = tuple(target), cast(body, value_dtype(init.dtype))
        self.nodes.append(node)
        return node

    def scan(
        self,
        op: str,
        shape: Sequence[Expr],
        axis: int,
        dtype: torch.dtype,
        make_body: Callable[[tuple[Expr, ...]], Body],
        *,
        state: torch.dtype,
        combine: Combine | None = None,
        part: int = 0,
    ) -> Scan:
        """Accumulate ``make_body(coordinates)`` along ``axis`` by ``op``; the running value has dtype ``state``.

        ``combine`` and ``part``: see ``Scan``.

        Raises:
            NotLowered: a single long row on a GPU.
        """
        if self.target.many_threads:
            length, total = shape[axis].as_int(), product(shape)
            if total == shape[axis] and (length is None or length > PERSISTENT):
                # One Triton program would compute the whole scan; torch's kernel uses the whole GPU.
                raise NotLowered(f"a scan over more than {PERSISTENT} elements in one row on a GPU")
        layout = contiguous_layout(shape, dtype, self.device)
        placeholder = Const(0, value_dtype(dtype))
        node = Scan(
            **self.common(layout), body=placeholder, op=op, axis=axis, state=state, combine=combine, part=part
        )
        node.body = make_body(node.index)
        self.nodes.append(node)
        return node

    def arguments(
        self,
        function: Callable[..., Any],
        operands: tuple[Any, ...],
        names: Iterable[str],
        dtype: torch.dtype,
    ) -> dict[str, Node]:
        """Make a call of ``function``, which keeps its place among random operators; kernels take its results by value.

        Return the results, numbers of ``dtype``, by ``names``.
        """
        label = f"{self.current}__{len(self.nodes)}"
        reads = tuple(value for value in operands if isinstance(value, Node))
        call = ExternCall(label, function, operands, {}, reads, effect=True, comment=self.comment)
        layout = Layout((), (), dtype, self.device)
        for position, name in enumerate(names):
            result = Argument(
                name=f"{label}_{name}", layout=layout, origin=self.current, call=call, path=(position,)
            )
            call.outputs.append(result)
        self.nodes.append(call)
        return dict(zip(names, call.outputs, strict=True))

    def view(
        self, base: Node, shape: Sequence[Expr], make_coords: Callable[[tuple[Expr, ...]], Sequence[Expr]]
    ) -> View:
        """Make a view whose element at some coordinates is the element of ``base`` at ``make_coords(coordinates)``."""
        layout = contiguous_layout(shape, base.dtype, base.device)
        node = View(**self.common(layout), base=base, coords=())
        node.coords = tuple(make_coords(node.index))
        return node


def read(node: Node, coords: Sequence[Coord]) -> Body:
    """Return the element of ``node`` at ``coords``: rules read operands by it. Views are resolved.

    Raises:
        NotLowered: a view cannot take a computed coordinate, or no element depends on the coordinate, so that
            no kernel would check it.
    """
    base, position = resolve(node, coords)
    if isinstance(base, View):
        raise NotLowered(f"computed index into the view {base.name}")
    for at, coord in enumerate(position):
        if isinstance(coord, Indirect) and not coord.known and not _varies(base, at):
            raise NotLowered(f"{base.name} is the same at every index: none would be checked")
    return Read(base, position)


def _varies(node: Node, dim: int) -> bool:
    """Whether the elements of ``node`` differ along ``dim``: they are loaded, or computed from this coordinate."""
    seen: set[tuple[int, int]] = set()
    stack = [(node, dim)]
    while stack:
        current, at = stack.pop()
        if (id(current), at) in seen:
            continue
        seen.add((id(current), at))
        if not isinstance(current, Pointwise):
            return True
        var = current.index[at].as_var()
        for part in current.parts:
            if isinstance(part, Index) and var in part.expr.variables:
                return True
            if not isinstance(part, Read):
                continue
            for k, coord in enumerate(part.coords):
                if isinstance(coord, Expr) and var in coord.variables:
                    stack.append((part.node, k))
    return False


def cast(body: Body, dtype: torch.dtype) -> Body:
    """Return ``body`` converted to ``dtype``; a constant is converted at once."""
    if body.dtype == dtype:
        return body
    if isinstance(body, Const) and dtype.is_floating_point:
        return Const(float(body.value), dtype)
    return Call("cast", (body,), dtype)


def round_to(body: Body, dtype: torch.dtype) -> Body:
    """Round a float32 value to ``dtype`` (16 or 8 bits), as storing the value in ``dtype`` would."""
    if isinstance(body, Const):
        return Const(torch.tensor(float(body.value), dtype=dtype).item(), torch.float32)
    return Call(ROUNDINGS[dtype], (body,), torch.float32)


def broadcast_shapes(shapes: Sequence[Sequence[Expr]]) -> tuple[Expr, ...]:
    """Return eager's broadcast shape. Sizes of different form count as equal, because tracing has guarded them."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Expr] = [as_expr(1)] * rank
    for shape in shapes:
        for position, size in enumerate(shape, rank - len(shape)):
            if result[position] == 1:
                result[position] = size
    return tuple(result)


def broadcast_coords(shape: Sequence[Expr], index: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return where the element at ``index`` of the broadcast tensor lies in a tensor of ``shape``, as coordinates."""
    offset = len(index) - len(shape)
    return tuple(ZERO if size == 1 else index[offset + k] for k, size in enumerate(shape))


def read_broadcast(value: TensorOrScalar, index: Sequence[Expr], dtype: torch.dtype) -> Body:
    """Return the element of a broadcast operand, converted to ``dtype``."""
    if isinstance(value, Node):
        return cast(read(value, broadcast_coords(value.shape, index)), dtype)
    return constant(value, dtype)


def operand(value: TensorOrScalar, index: Sequence[Expr], dtype: torch.dtype) -> Body:
    """Return the operand's element, converted to ``dtype`` as eager does (possibly rounded to half)."""
    body = read_broadcast(value, index, value_dtype(dtype))
    if dtype == value_dtype(dtype) or (isinstance(value, Node) and value.dtype in _FIT_HALF | {dtype}):
        return body
    return round_to(body, dtype)


# Every value of these dtypes is exact in half precision, so no rounding is needed.
_FIT_HALF = frozenset({torch.bool, torch.int8, torch.uint8})


def constant(value: Scalar | Expr | HostScalar, dtype: torch.dtype) -> Body:
    """Return a number as a value of ``dtype``: a constant, a size expression, or a number that the host computes."""
    if isinstance(value, HostScalar):
        return cast(Read(value.tensor, ()), dtype)
    if isinstance(value, Expr):
        return cast(Index(value), dtype)
    return number(value, dtype)


def number(value: Scalar, dtype: torch.dtype) -> Const:
    """Return ``value`` converted to ``dtype`` as eager converts a Python number (integers wrap around)."""
    if dtype.is_floating_point:
        return Const(float(value), dtype)
    if dtype is torch.bool:
        return Const(bool(value), dtype)
    info = torch.iinfo(dtype)
    span = info.max - info.min + 1
    return Const((int(value) - info.min) % span + info.min, dtype)


ATOMICS = frozenset(
    {
        *(("add", t) for t in (torch.float32, torch.float64, torch.int32, torch.int64)),
        *((op, t) for op in ("max", "min") for t in (torch.int32, torch.int64)),
    }
)
"""The (op, dtype) pairs that GPU atomics combine as torch does. Atomic float extremes would lose NaN."""


def _require_atomics(op: str, dtype: torch.dtype) -> None:
    """Raise ``NotLowered`` unless atomics may do the scatter: they run in any order, as in torch's kernels."""
    if torch.are_deterministic_algorithms_enabled():
        raise NotLowered("a scatter on a GPU, whose order must be fixed (deterministic algorithms)")
    if op != "set" and (op, dtype) not in ATOMICS:
        raise NotLowered(f"a scatter on a GPU that combines {dtype} by {op}")
