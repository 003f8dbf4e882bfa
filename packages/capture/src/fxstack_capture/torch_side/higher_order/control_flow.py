"""``torch.cond``, ``while_loop``, ``map``, ``scan`` and ``associative_scan`` as nodes with nested graphs.

The interpreter runs torch's Python code around the operators. This module has the rules of the operators. The
functions become graphs (``subgraphs``). The results get the metadata that the operator returns. An
unsupported call breaks the graph, and torch's own operator decides. Examples are branches whose results
differ in size, loops that carry numbers, and functions with effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import fx

from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_compat import pytree
from fxstack_capture.torch_side.fakes.faker import with_history
from fxstack_capture.torch_side.higher_order import subgraphs
from fxstack_capture.torch_side.higher_order.subgraphs import Subgraph
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

Tensors = list[torch.Tensor]

# Limits: eager torch compiles such calls with its own compiler. torch's compiler rejects some functions that
# fxstack compiles (for example, an operand that is also a closure). torch's compiler may not see functions
# that run in plain Python inside of compiled code.

_OPERATORS = torch.ops.higher_order


class GraphsOfCall:
    """One call of an operator during recording: its traced functions, their free nodes, and its operands."""

    def __init__(self, tracer: TracerProtocol, operator: Any, sized: Tensors | None = None) -> None:
        """Begin a call. The symbolic sizes of ``sized`` become free nodes, because derivatives save such sizes."""
        if tracer.transforms.inside:
            raise graph_break("unsupported-call", f"{operator} inside of a torch.func transform")
        self.tracer = tracer
        self.operator = operator
        self.sizes = [tracer.builder.argument(size, []) for size in _symbols(sized or ())]
        self.mark = tracer.builder.mark()
        """The last node before the traced functions, whose nodes are moved out of the outer graph."""
        self.traced: list[Subgraph] = []

    def trace(
        self,
        fn: Callable[..., Any],
        likes: Sequence[torch.Tensor],
        nested: pytree.TreeSpec | None = None,
        *,
        apart: bool = True,
    ) -> Subgraph:
        """Trace a function on new fakes with the metadata of ``likes`` (see ``subgraphs.trace``)."""
        inputs = [subgraphs.fake_of(self.tracer, like) for like in likes]
        subgraph = subgraphs.trace(self.tracer, fn, inputs, nested, apart=apart)
        self.traced.append(subgraph)
        return subgraph

    def trace_predicate(self, fn: Callable[..., Any], likes: Sequence[torch.Tensor]) -> None:
        """Trace the condition of a loop, whose graph must return one value."""
        subgraph = self.trace(fn, likes)
        if len(subgraph.outputs) > 1 or subgraph.outputs[0].numel() != 1:
            raise self.refuse("whose condition is not one value")
        self.traced[-1] = replace(subgraph, is_single=True)

    def modules(self) -> tuple[list[Any], tuple[fx.Node, ...]]:
        """Return a module for each function. All modules take the same free nodes after their own inputs."""
        free = tuple(
            dict.fromkeys((*self.sizes, *(node for subgraph in self.traced for node in subgraph.free)))
        )
        cut = [subgraphs.cut_out(self.tracer, subgraph, free) for subgraph in self.traced]
        builder = self.tracer.builder
        builder.roll_back(self.mark)
        name = self.operator.name()
        return [builder.module(f"{name}_graph", module) for module in cut], free

    def operands(self, tensors: Sequence[Any]) -> list[fx.Node]:
        """Return the graph nodes of tensors and numbers, for the arguments of the operator's node."""
        return [self.tracer.builder.argument(value, []) for value in tensors]

    def write(self, node_args: Args, results: Tensors, spec: pytree.TreeSpec) -> Any:
        """Add the node of the operator, and return the results in the structure of the function's results."""
        builder = self.tracer.builder
        node = builder.add("call_function", self.operator, node_args, {})
        self.tracer.annotate(node)
        builder.bind(tuple(results), node)
        self.tracer.all_bound()
        return subgraphs.unflatten(self.tracer, list(results), spec)

    def make_results(self, likes: Sequence[torch.Tensor], *, gradient: bool) -> Tensors:
        """Return new fakes with the metadata of ``likes``. ``gradient``: floats require grad in grad mode."""
        with self.tracer.unrecorded(), self.tracer.mode, torch.no_grad():
            fakes = [torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device) for x in likes]
        if not (gradient and torch.is_grad_enabled()):
            return list(fakes)
        return [with_history(x) if x.dtype.is_floating_point or x.dtype.is_complex else x for x in fakes]

    def refuse(self, why: str) -> BaseException:
        """Return a graph break with the reason ``why``. Plain Python then runs torch's own operator."""
        return graph_break("operator-function", f"{self.operator.name()} {why}")


def _symbols(tensors: Sequence[torch.Tensor]) -> list[torch.SymInt]:
    """Return the symbolic sizes of ``tensors`` that are single symbols, once each."""
    sizes = [size for x in tensors if isinstance(x, torch.Tensor) for size in x.size()]
    symbols = [s for s in sizes if isinstance(s, torch.SymInt) and s.node.expr.is_symbol]
    return list({size.node.expr: size for size in symbols}.values())


def any_gradient(operands: Sequence[Any], free: Sequence[fx.Node]) -> bool:
    """Return whether an operand or the value of a free node requires grad."""
    values = (*operands, *(node.meta["val"] for node in free))
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in values)


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the metadata in which both branches, or the carry and its successor, must agree."""
    return tensor.dtype, tensor.device, tuple(tensor.size()), tensor.stride()


def _same_layout(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Return whether two lists of tensors agree in number and layout."""
    return len(tensors) == len(others) and all(
        _layout(x) == _layout(y) for x, y in zip(tensors, others, strict=True)
    )


def _demand_tensors(call: GraphsOfCall, values: Sequence[Any]) -> None:
    """Break the graph of ``call`` if one of ``values`` is no tensor."""
    if not all(isinstance(value, torch.Tensor) for value in values):
        raise call.refuse("of what is no tensor")


def _slices(call: GraphsOfCall, tensors: Sequence[torch.Tensor]) -> Tensors:
    """Return the first element of each tensor along the first dimension, for metadata."""
    with call.tracer.unrecorded(), call.tracer.mode:
        return [x[0] for x in tensors]


def _stack_results(call: GraphsOfCall, tensors: Sequence[torch.Tensor], length: Any) -> Tensors:
    """Return the stacked results of all iterations, with a new first dimension, for metadata."""
    with call.tracer.unrecorded(), call.tracer.mode, torch.no_grad():
        return [torch.empty((length, *x.size()), dtype=x.dtype, device=x.device) for x in tensors]


def cond(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``cond(pred, true_fn, false_fn, operands)``: trace both branches as nested graphs."""
    pred, true_fn, false_fn, operands = bind_arguments(args, kwargs, "pred true_fn false_fn operands")
    call = GraphsOfCall(tracer, _OPERATORS.cond)
    flat, spec = subgraphs.flatten(tracer, operands)
    _demand_tensors(call, flat)
    yes, no = (call.trace(fn, flat, spec) for fn in (true_fn, false_fn))
    if yes.spec != no.spec or not _same_layout(yes.outputs, no.outputs):
        raise call.refuse("whose branches return different kinds of results")
    (true_graph, false_graph), free = call.modules()
    results = call.make_results(yes.outputs, gradient=any_gradient((pred, *flat), free))
    chosen = tracer.builder.argument(pred, [])
    operand_nodes = (*call.operands(flat), *free)
    return call.write((chosen, true_graph, false_graph, operand_nodes), results, yes.spec)


def while_loop(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``while_loop(cond_fn, body_fn, carried_inputs, additional_inputs)``."""
    names = "cond_fn body_fn carried_inputs additional_inputs"
    cond_fn, body_fn, carried, additional = bind_arguments(args, kwargs, names)
    call = GraphsOfCall(tracer, _OPERATORS.while_loop)
    inputs = [*carried, *additional]
    _demand_tensors(call, inputs)
    call.trace_predicate(cond_fn, inputs)
    body = call.trace(body_fn, inputs)
    if not _same_layout(body.outputs, carried):
        raise call.refuse("whose body returns other kinds of tensors than it gets")
    (cond_graph, body_graph), free = call.modules()
    results = call.make_results(carried, gradient=any_gradient(inputs, free))
    further = (*call.operands(additional), *free)
    node_args = (cond_graph, body_graph, tuple(call.operands(carried)), further)
    return call.write(node_args, results, body.spec)


def _record_loop(call: GraphsOfCall, body: Any, groups: tuple[Tensors, ...], additional: Tensors) -> Any:
    """Record a call of one function over the slices of the last group. All iterations get ``additional``.

    The first outputs of the function are the carried state of the other group. The remaining outputs are stacked.
    """
    *states, slices = groups
    count = sum(map(len, states))
    carried, per_step = body.outputs[:count], body.outputs[count:]
    (graph,), free = call.modules()
    outputs = [*carried, *_stack_results(call, per_step, slices[0].size(0))]
    results = call.make_results(outputs, gradient=any_gradient([*chain(*groups), *additional], free))
    node_args = (graph, *map(call.operands, groups), (*call.operands(additional), *free))
    return call.write(node_args, results, body.spec)


def map_(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``map_impl(f, xs, pos_args)``."""
    fn, xs, additional = bind_arguments(args, kwargs, "f xs pos_args")
    call = GraphsOfCall(tracer, _OPERATORS.map_impl)
    _demand_tensors(call, (*xs, *additional))
    body = call.trace(fn, [*_slices(call, xs), *additional])
    return _record_loop(call, body, (xs,), additional)


def scan(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``scan(combine_fn, init, xs, additional_inputs)``."""
    fn, init, xs, additional = bind_arguments(args, kwargs, "combine_fn init xs additional_inputs")
    call = GraphsOfCall(tracer, _OPERATORS.scan, [*init, *xs, *additional])
    _demand_tensors(call, (*init, *xs, *additional))
    body = call.trace(fn, [*init, *_slices(call, xs), *additional])
    if not _same_layout(body.outputs[: len(init)], init):
        raise call.refuse("whose function returns another kind of carry than it gets")
    return _record_loop(call, body, (init, xs), additional)


def associative_scan(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``associative_scan(combine_fn, xs, additional_inputs)``."""
    fn, xs, additional = bind_arguments(args, kwargs, "combine_fn xs additional_inputs")
    call = GraphsOfCall(tracer, _OPERATORS.associative_scan)
    _demand_tensors(call, (*xs, *additional))
    slices = _slices(call, xs)
    body = call.trace(fn, [*slices, *slices, *additional])
    return _record_loop(call, body, (xs,), additional)


def bind_arguments(args: Args, kwargs: Kwargs, names: str) -> tuple[Any, ...]:
    """Return the arguments in the order of ``names``, which blanks separate. A missing argument is an empty tuple."""
    by_name = dict(zip(names.split(), args, strict=False)) | kwargs
    return tuple(by_name.get(name, ()) for name in names.split())


RULES = {
    _OPERATORS.cond: cond,
    _OPERATORS.while_loop: while_loop,
    _OPERATORS.map_impl: map_,
    _OPERATORS.scan: scan,
    _OPERATORS.associative_scan: associative_scan,
}
