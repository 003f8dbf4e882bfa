"""The rule for all operators that have functions as arguments and a row (``nested.operator_rows``).

``cond``, ``while_loop``, ``map``, ``scan`` and ``associative_scan`` (``control_flow``) and
``flex_attention`` (``flex``) have rules of their own. An operator without a row gets a node if its function can be
found out by running the operator on fakes (``unknown_operators``).

The node of an operator holds each function as a ``get_attr`` node of a ``GraphModule``. The tensors that the
function uses are the operands of the node, in the order of their first use, whether the program passes them or the
function closes over them.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_compat import HigherOrderOperator
from fxstack_capture.torch_side.higher_order import inline_calls, subgraphs
from fxstack_capture.torch_side.higher_order.nested.calls import GraphsOfCall, any_gradient
from fxstack_capture.torch_side.higher_order.nested.operator_rows import OPERATORS, Kind, Operator, row_of
from fxstack_capture.torch_side.higher_order.stacked_loops import stacked_loop
from fxstack_capture.torch_side.higher_order.unknown_operators import call_unknown
from fxstack_capture.torch_side.recording.execution import run_fake
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs


def calls_to_replace() -> list[Callable[..., Any]]:
    """Return the methods ``__call__`` of operators that do more than check their arguments.

    The rule of the operator runs in place of such a method.
    """
    rows = [row for row in OPERATORS if row.kind in (Kind.INLINE, Kind.RECORDED)]
    operators = [getattr(torch.ops.higher_order, row.name, None) for row in rows]
    methods = {type(operator).__call__ for operator in operators if operator is not None}
    return [*methods.difference([HigherOrderOperator.__call__])]


@dataclass(frozen=True, slots=True)
class _Place:
    """One argument of a call: its role, its value, its keyword ("" if positional), and the kind of its parameter."""

    role: str
    value: Any
    keyword: str
    kind: Any


@dataclass(slots=True)
class _Roles:
    """The arguments of one call by their roles."""

    function: Any = None
    operands: tuple[Any, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    constants: list[Any] = field(default_factory=list)
    places: list[_Place] = field(default_factory=list)

    def node_arguments(
        self, graph: fx.Node, operands: tuple[fx.Node, ...]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put the function's graph and its operands in the places of the program's arguments."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        further: tuple[fx.Node, ...] = operands
        for place in self.places:
            if place.kind is inspect.Parameter.VAR_POSITIONAL or (
                place.kind is inspect.Parameter.VAR_KEYWORD and place.role == "inputs"
            ):
                continue  # all that the function uses is among the operands
            if place.kind is inspect.Parameter.VAR_KEYWORD:
                named.update(place.value)
                continue
            value = place.value
            if place.role == "operands":
                value, further = operands, ()
            elif place.role == "inputs":
                value = {}
            elif place.role == "function":
                value = graph
            if place.keyword:
                named[place.keyword] = value
            else:
                positional.append(value)
        return (*positional, *further), named


def call_operator(tracer: TracerProtocol, operator: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for all higher-order operators that have no rule of their own."""
    row = row_of(operator)
    if row is None:
        return call_unknown(tracer, operator, args, kwargs)
    if row.kind is Kind.LOOP:
        return stacked_loop(tracer, operator, args, kwargs)
    if row.kind is Kind.RECORDED:
        if row.name == "call_torchbind":
            _demand_pure_method(*args[:2])
        return tracer.record(operator, args, kwargs)
    roles = _roles(tracer, row, args, kwargs)
    if isinstance(roles.function, torch_compat.FunctionWithNoFreeVars):
        roles.function = tracer.trace.objects.load_attr(roles.function, "fn")
    if not callable(roles.function):
        raise graph_break("operator-function", f"{row.name} of a {type(roles.function).__qualname__}")
    run = partial(tracer.trace.calls.call, roles.function, roles.operands, dict(roles.inputs))
    if row.kind is Kind.INLINE:
        meta = _meta_of(tracer, roles.function) if row.keeps_meta else {}
        if row.is_shared and tracer.transforms.inside:  # the nodes are those of the transform's layers
            return run()
        call = inline_calls.BodyCall(operator, row.attribute, roles.node_arguments, meta, row.is_shared)
        with _state(tracer, row, roles):
            return inline_calls.run_in_place(tracer, call, run)
    return _call_pure(tracer, operator, row, roles)


@contextmanager
def _state(tracer: TracerProtocol, row: Operator, roles: _Roles) -> Iterator[None]:
    """Set the state of torch that the operator sets for its function, without nodes."""
    if row.state is None:
        yield
        return
    with tracer.unrecorded():
        context = row.state(*roles.constants)
        context.__enter__()
    try:
        yield
    finally:
        with tracer.unrecorded():
            context.__exit__(None, None, None)


def _call_pure(tracer: TracerProtocol, operator: Any, row: Operator, roles: _Roles) -> Any:
    """Trace the function as a graph without effects, and record a node whose results are new tensors."""
    call = GraphsOfCall(tracer, operator)
    function = partial(roles.function, *roles.operands, **roles.inputs)
    body = call.trace(function, [])
    free = body.free
    module = subgraphs.cut_out(tracer, body, free)
    tracer.builder.roll_back(call.mark)
    operands = [tracer.builder.node_of(x) for x in _tensors((roles.operands, roles.inputs))]
    if row.kind is Kind.UNDIFFERENTIABLE:
        free = tuple(node if node in operands else _detached(tracer, node) for node in free)
    gradient = any_gradient((), free)
    results = call.make_results(body.outputs, gradient=gradient)
    graph = tracer.builder.module(row.attribute, module)
    node_args, node_kwargs = roles.node_arguments(graph, free)
    builder = tracer.builder
    node = builder.add("call_function", operator, node_args, node_kwargs)
    tracer.annotate(node)
    builder.bind(tuple(results), node)
    tracer.all_bound()
    return subgraphs.unflatten(tracer, list(results), body.spec)


def _demand_pure_method(script_object: Any, method: object = "") -> None:
    """Break the graph at a method of a torchbind object, which would run on the real object during the trace."""
    name = (
        f"{script_object._type().qualified_name()}.{method}"
        if isinstance(script_object, torch.ScriptObject)
        else method
    )
    raise graph_break("operator-function", f"call_torchbind of {name}, which may change its object,")


def record_held(tracer: TracerProtocol, operator: Any, held: Mapping[str, Any], args: Args) -> Any:
    """Record a call of an operator. ``held``: its first arguments, objects that the graph module holds, by name."""
    builder = tracer.builder
    with tracer.unrecorded():
        result = run_fake(tracer.mode, operator, (*held.values(), *args), {})
    objects = [builder.module(name, value) for name, value in held.items()]
    node = builder.add(
        "call_function", operator, (*objects, *(builder.argument(arg, []) for arg in args)), {}
    )
    tracer.annotate(node)
    builder.bind(result, node)
    tracer.all_bound()
    return result


def _tensors(value: object) -> list[torch.Tensor]:
    """Return the tensors among the leaves of plain containers."""
    return [leaf for leaf in torch_compat.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _detached(tracer: TracerProtocol, node: fx.Node) -> fx.Node:
    """Return ``node``, or a node of its value without history if the value requires grad."""
    value = node.meta["val"]
    if not (isinstance(value, torch.Tensor) and value.requires_grad):
        return node
    return tracer.builder.node_of(tracer.record(torch.Tensor.detach, (value,), {}))


def _meta_of(tracer: TracerProtocol, function: Any) -> dict[str, Any]:
    """Return the metadata of a ``GraphModule``, whose identity is guarded."""
    meta = getattr(tracer.trace.objects.original_of(function), "meta", None)
    return dict(meta) if isinstance(meta, dict) else {}


_SIGNATURES: dict[str, tuple[inspect.Signature, frozenset[str]]] = {}


def _signature(text: str) -> tuple[inspect.Signature, frozenset[str]]:
    """Return the signature of a row, and the names of the parameters after ``;``."""
    if text not in _SIGNATURES:
        positional, _, keywords = text.partition(";")
        kinds = inspect.Parameter
        parameters, kept = [], set()
        for entry in (*positional.split(","), *keywords.split(",")):
            if not entry.strip():
                continue
            name, _, role = entry.strip().partition("=")
            bare = name.lstrip("*")
            kind = {2: kinds.VAR_KEYWORD, 1: kinds.VAR_POSITIONAL}.get(len(name) - len(bare))
            parameters.append(kinds(bare, kind or kinds.POSITIONAL_OR_KEYWORD, annotation=role))
            if entry in keywords.split(","):
                kept.add(bare)
        _SIGNATURES[text] = inspect.Signature(parameters), frozenset(kept)
    return _SIGNATURES[text]


def _roles(tracer: TracerProtocol, row: Operator, args: Args, kwargs: Kwargs) -> _Roles:
    """Sort the arguments of a call by the roles of the row. Break the graph if they do not match the signature."""
    signature, kept = _signature(row.signature)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise graph_break("operator-function", f"{row.name} with wrong arguments ({error})") from error
    roles = _Roles()
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        role = parameter.annotation
        if role == "function":
            roles.function = value
        elif role == "operands":
            roles.operands = tuple(value)
        elif role == "inputs":
            roles.inputs = dict(value)
        else:
            roles.constants.append(value)
        keyword = name if name in kwargs or name in kept else ""
        placed = _constant(tracer, value) if role == "constant" else value
        roles.places.append(_Place(role, placed, keyword, parameter.kind))
    return roles


def _constant(tracer: TracerProtocol, value: Any) -> Any:
    """Return a constant argument as an argument of the node. An instance of a frozen dataclass becomes a node."""
    if type(value) is dict:
        return {name: _constant(tracer, item) for name, item in value.items()}
    parameters = getattr(type(value), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return tracer.builder.argument(value, [])
    names = [each.name for each in dataclasses.fields(value) if each.init]
    fields = {name: _constant(tracer, tracer.trace.objects.load_attr(value, name)) for name in names}
    node = tracer.builder.add("call_function", type(value), (), fields)
    node.meta.update(val=None, example_value=None)
    tracer.annotate(node)
    return node
