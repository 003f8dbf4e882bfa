"""Lower an operator that calls functions to a loop or a branch of the host program.

The host program calls the functions with the memory of their operands and results, so an iteration allocates nothing:
carries alternate between two tensors, and stacked results are written in their places. A call that does not fit (numbers
as carries, sizes that are known only after the call) stays a call of the operator on compiled functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Protocol

import torch
from torch.fx import Node as FxNode

from fxstack_inductor.ir.expr import Expr, as_expr
from fxstack_inductor.ir.nodes import Extern, ExternCall, Layout, Node, Pointwise, View, contiguous_layout
from fxstack_inductor.lower.layouts import layout_of
from fxstack_inductor.lower.nested.graphs import NestedGraph, NestedGraphs, operator_name
from fxstack_inductor.lower.nested.results import Results, Source, copy_of, is_same
from fxstack_inductor.lower.node_queries import is_dense

Operand = Node | Expr


@dataclass(frozen=True, slots=True)
class Form:
    """The parts of a call. A function takes ``carried``, then one slice of each of ``sliced``, then ``shared``.

    ``kind`` is "while", "scan", "branch" or "call".
    """

    kind: str
    functions: tuple[NestedGraph, ...]
    carried: tuple[Any, ...] = ()
    sliced: tuple[Any, ...] = ()
    shared: tuple[Any, ...] = ()
    predicate: Any = None
    """The tensor that chooses a branch."""

    @property
    def operands(self) -> tuple[Any, ...]:
        """All operands of a function, in order."""
        return (*self.carried, *self.sliced, *self.shared)

    @property
    def name(self) -> str:
        """The function of ``runtime.nested`` that computes the same on compiled functions."""
        return {"while": "while_loop", "branch": "cond", "call": "wrap"}.get(self.kind, self.kind)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the function ``name``."""
        match self.kind:
            case "branch":
                return (self.predicate, *self.functions, self.shared)
            case "while":
                return (*self.functions, self.carried, self.shared)
            case "scan":
                return (*self.functions, self.carried, self.sliced, self.shared)
            case _:
                return (*self.functions, *self.shared)


class Function(Protocol):
    """A scheduled function (``schedule.steps.Body``)."""

    @property
    def results(self) -> Results: ...


@dataclass(eq=False, slots=True)
class NestedCall(ExternCall):
    """A loop or branch of the host program. Its results are written into memory that the program provides."""

    form: Form = field(kw_only=True)
    """The call on lowered operands, with the layouts that the functions expect."""
    bodies: tuple[Function, ...] = field(kw_only=True)
    """The scheduled functions, in the order of ``form.functions``."""
    scratch: list[Extern] = field(default_factory=list)
    """The second tensor of each carry, and the result of the condition of a loop."""

    @property
    def written(self) -> list[Extern]:
        """The tensors that the program provides memory for."""
        return [*(v for k, v in enumerate(self.outputs) if k not in self.made), *self.scratch]

    @property
    def made(self) -> set[int]:
        """The positions in ``outputs`` of tensors that operators of ATen make."""
        return self.bodies[-1].results.made


FORMS: Final[MappingProxyType[str, Callable[..., Form]]] = MappingProxyType(
    {
        "cond": lambda p, true, false, operands: Form(
            "branch", (true, false), shared=tuple(operands), predicate=p
        ),
        "while_loop": lambda holds, body, carried, shared=(): Form(
            "while", (holds, body), tuple(carried), shared=tuple(shared)
        ),
        "scan": lambda body, init, xs, shared=(): Form(
            "scan", (body,), tuple(init), tuple(xs), tuple(shared)
        ),
        "map_impl": lambda body, xs, shared=(): Form("scan", (body,), sliced=tuple(xs), shared=tuple(shared)),
        "invoke_subgraph": lambda body, _identifier, *operands: Form("call", (body,), shared=operands),
        "strict_mode": lambda body, operands: Form("call", (body,), shared=tuple(operands)),
        "wrap": lambda body, *operands: Form("call", (body,), shared=operands),
    }
)
"""The form of a call, from its arguments, by the operator's name."""


def nested_call(
    node: FxNode, args: tuple[Any, ...], graphs: NestedGraphs
) -> tuple[list[Node | NestedCall], tuple[Node | None, ...]] | None:
    """Return the steps of the call ``node`` as a loop or branch (copies of operands, the call), and its results.

    None if the call does not fit.
    """
    name = operator_name(node.target)
    value = node.meta.get("val")
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if graphs.schedule is None or name is None or name not in FORMS:
        return None
    form = FORMS[name](*args)
    if not all(v is None or _is_plain(v) for v in values) or not values or not _has_steps(form):
        return None
    laid_out = _with_layouts(form)
    layouts = _result_layouts(form, values)
    if laid_out is None or layouts is None:
        return None
    first = len(form.carried)
    steps = [*layouts[:first], *(one_step(v) if form.kind == "scan" and v else v for v in layouts[first:])]
    wanted: list[list[Layout | None]] = (
        [[_FLAG], steps] if form.kind == "while" else [steps] * len(form.functions)
    )
    bodies: list[Function] = []
    for function, results in zip(form.functions, wanted, strict=True):
        body = graphs.schedule(function, tuple(results), form.kind != "call")
        if body is None:
            return None
        bodies.append(body)
    copies, operands = laid_out
    call, found = _call(node, operands, tuple(bodies), layouts)
    return [*copies, call], found


_FLAG = Layout((), (), torch.bool, torch.device("cpu"))
"""The result of a loop's condition."""


def _call(
    node: FxNode, form: Form, bodies: tuple[Function, ...], layouts: Sequence[Layout | None]
) -> tuple[NestedCall, tuple[Node | None, ...]]:
    """Return the call with its results and scratch tensors, and the results of the operator."""
    reads = tuple(v for v in (*form.operands, form.predicate) if isinstance(v, Node))
    call = NestedCall(node.name, node.target, (), {}, reads, effect=True, form=form, bodies=bodies)
    results = bodies[-1].results
    for position, result in zip(results.positions, results.nodes, strict=True):
        layout = layouts[position]
        if layout is None or form.kind == "call":
            layout = result.layout
        call.outputs.append(_result(call, f"{node.name}_out{position}", layout, (position,)))
    kept = call.outputs[: len(form.carried)]
    call.scratch += [_result(call, f"{result.name}_spare", result.layout, ()) for result in kept]
    if form.kind == "while":
        call.scratch.append(_result(call, f"{node.name}_holds", _FLAG, ()))
    tensors = (*form.operands, *call.outputs)
    values = [
        None if source is None else _seen(node, tensors[source.base], source, layout)
        for source, layout in zip(results.sources, layouts, strict=True)
    ]
    return call, tuple(values)


def _seen(node: FxNode, base: Operand, source: Source, layout: Layout | None) -> Node:
    """Return a result of the operator: a tensor, or a view of it."""
    assert isinstance(base, Node)
    assert layout is not None
    if source.coords is None:
        return base
    return View(name=f"{base.name}_view", layout=layout, origin=node.name, base=base, coords=source.coords)


def _result(call: NestedCall, name: str, layout: Layout, path: tuple[int, ...]) -> Extern:
    """Return a tensor that ``call`` writes."""
    return Extern(name=name, layout=layout, origin=call.name, call=call, path=path, comment=call.comment)


def _is_plain(value: object) -> bool:
    """Whether the fake value is a dense tensor on the CPU of a dtype that kernels can store."""
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and is_dense(value)


def _has_steps(form: Form) -> bool:
    """Whether the parts of the call are of types that the host program can pass."""
    operands = all(isinstance(v, (Node, Expr, int)) for v in form.operands)
    tensors = all(isinstance(v, Node) for v in (*form.carried, *form.sliced))
    if form.kind == "branch" and not (
        isinstance(form.predicate, Node) and form.predicate.dtype is torch.bool
    ):
        return False
    if form.kind == "scan" and (not form.sliced or (not form.carried and form.sliced[0].shape[0] == 0)):
        return False  # eager rejects a map over no slices
    return operands and tensors


# --- layouts of operands and results ------------------------------------------------------------------


def _with_layouts(form: Form) -> tuple[list[Pointwise], Form] | None:
    """Return the call on operands with the layouts of the functions' placeholders, and the copies that these are.

    None if a placeholder is neither a tensor nor an integer, or if shapes differ.
    """
    copies: list[Pointwise] = []
    operands: list[Operand] = []
    placeholders = [f.module.graph.find_nodes(op="placeholder") for f in form.functions]
    if any(len(nodes) != len(form.operands) for nodes in placeholders):
        return None
    first = len(form.carried)
    for position, operand in enumerate(form.operands):
        is_sliced = first <= position < first + len(form.sliced)
        for value in (nodes[position].meta["val"] for nodes in placeholders):
            fitting = _fitted(operand, value, is_sliced=is_sliced, copies=copies)
            if fitting is None:
                return None
            operand = fitting  # noqa: PLW2901 - a second function may need no other layout
        operands.append(operand)
    rest = first + len(form.sliced)
    carried, sliced = tuple(operands[:first]), tuple(operands[first:rest])
    return copies, replace(form, carried=carried, sliced=sliced, shared=tuple(operands[rest:]))


def _fitted(operand: Any, value: object, *, is_sliced: bool, copies: list[Pointwise]) -> Operand | None:
    """Return ``operand``, or a copy of it, as a function with a placeholder of the fake ``value`` expects it."""
    if not isinstance(operand, Node):
        return as_expr(operand) if isinstance(value, (int, torch.SymInt)) else None
    if not _is_plain(value):
        return None
    assert isinstance(value, torch.Tensor)
    wanted, own = layout_of(value), operand.layout
    stride = own.stride[1:] if is_sliced else own.stride
    if (own.shape[1:] if is_sliced else own.shape) != wanted.shape or own.dtype != wanted.dtype:
        return None
    if is_same(wanted.shape, stride, wanted.stride):
        return operand
    if any(copy is operand for copy in copies):
        return None  # two functions expect different layouts
    layout = replace(own, stride=wanted.stride)
    if is_sliced:
        layout = contiguous_layout(own.shape, own.dtype, own.device)
        if not is_same(wanted.shape, layout.stride[1:], wanted.stride):
            return None
    copies.append(copy_of(operand, layout, f"{operand.name}_operand{len(copies)}"))
    return copies[-1]


def _result_layouts(form: Form, values: Sequence[Any]) -> list[Layout | None] | None:
    """Return the layouts of what the functions write, by result; None for a result that is None.

    A carry has the layout of its operand in each iteration. Return None if the operator's results have another layout.
    """
    layouts: list[Layout | None] = []
    placeholders = form.functions[-1].module.graph.find_nodes(op="placeholder")
    for position, value in enumerate(values):
        layout = None if value is None else layout_of(value)
        if position < len(form.carried):
            operand = placeholders[position].meta["val"]
            if layout is None or not _is_plain(operand):
                return None
            own = layout_of(operand)
            if own.shape != layout.shape or not is_same(own.shape, own.stride, layout.stride):
                return None
        layouts.append(layout)
    return layouts


def one_step(layout: Layout) -> Layout:
    """Return the layout of one slice of a stacked result."""
    return replace(layout, shape=layout.shape[1:], stride=layout.stride[1:])
