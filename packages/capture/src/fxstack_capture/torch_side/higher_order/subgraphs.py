"""The nested graph of a function that ``torch.cond``, ``while_loop``, ``map`` or ``scan`` calls.

The interpreter runs the function on new fakes (``parameter`` nodes). The new nodes then move from the graph
into a ``GraphModule``. The nodes of the outer graph that the function uses (closures over tensors, and
symbolic sizes) become additional inputs.

The trace does not know how often the function will run. Therefore an effect of the function other than its
results breaks the graph, and plain Python runs the function. Guards of the function stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_compat import FakeTensor, pytree
from fxstack_capture.torch_side.autograd.state_reads import StateLocation, note_reads
from fxstack_capture.torch_side.higher_order import nested_checks
from fxstack_capture.torch_side.higher_order.surroundings import Surroundings
from fxstack_capture.torch_side.higher_order.inline_calls import close_bodies
from fxstack_capture.torch_side.recording.execution import name_of
from fxstack_capture.torch_side.recording.graph import root_of
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapped
from fxstack_capture.trace.state import Args
from fxstack_interchange.modules import make_graph_module


def parameter() -> None:
    """The target of the nodes that represent the inputs of a function, until ``cut_out`` makes the graph."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A traced function.

    ``outputs`` are the fakes of the flat results. ``spec`` is the structure of the results. ``free`` are the
    nodes of the outer graph that the function uses.
    """

    nodes: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]
    outputs: tuple[torch.Tensor, ...]
    spec: pytree.TreeSpec
    free: tuple[fx.Node, ...] = ()
    is_single: bool = False
    """Whether the graph returns one value rather than a tuple."""
    reads: tuple[StateLocation, ...] = ()
    """Locations in Python objects from which the function has read (``state_reads``)."""


def fake_of(tracer: TracerProtocol, like: torch.Tensor) -> torch.Tensor:
    """Return a new fake with the metadata of ``like`` and an unknown value."""
    # Each iteration of a loop passes another tensor.
    with tracer.unrecorded(), tracer.mode, torch.no_grad():
        fake = like.detach()
    if isinstance(fake, FakeTensor):
        fake.constant = None
        fake.item_memo = None  # the cached result of ``item()``, since torch 2.15
    return fake.requires_grad_() if like.requires_grad else fake


def flatten(tracer: TracerProtocol, value: object) -> tuple[list[Any], pytree.TreeSpec]:
    """Return the leaves and the pytree structure of a container of the trace. The interpreter records the guards."""
    leaves, spec = tracer.trace.calls.call(pytree.tree_flatten, (value,), {})
    return leaves, spec


def unflatten(tracer: TracerProtocol, leaves: list[Any], spec: pytree.TreeSpec) -> Any:
    """Rebuild the container of ``spec`` in the trace, so that node classes of the program run their own functions."""
    return tracer.trace.calls.call(pytree.tree_unflatten, (leaves, spec), {})


def trace(
    tracer: TracerProtocol,
    fn: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    nested: pytree.TreeSpec | None,
    *,
    apart: bool = True,
) -> Subgraph:
    """Call ``fn`` on ``inputs``, which are new fakes. The caller removes the nodes (``roll_back``).

    ``nested`` is the structure of the arguments, or ``None`` if ``inputs`` are the arguments. ``apart``
    requires that results have their own memory.
    """
    builder = tracer.builder
    mark = builder.mark()
    for fake in inputs:
        builder.bind(fake, builder.add("call_function", parameter, (), {}))
    written, tracer.mutated_storages = tracer.mutated_storages, set()
    before, facts = Surroundings(tracer.trace, fn), nested_checks.facts(tracer)
    try:
        args = inputs if nested is None else unflatten(tracer, list(inputs), nested)
        with tracer.assumptions.none_inside(nested=True), note_reads(tracer.trace.objects) as reads:
            value = _call_function(tracer, fn, tuple(args))
        outputs, spec = flatten(tracer, value)
        if not outputs or not all(isinstance(out, torch.Tensor) for out in outputs):
            raise _refusal(fn, "which does not return tensors alone")
        results = tuple(builder.node_of(out) for out in outputs)
        if before.have_changed():
            raise _refusal(fn, "which changes what was there before it")
        if nested_checks.has_outside_assumption(tracer, mark, facts):
            raise _refusal(fn, "which assumes something of a number from outside")
        subgraph = Subgraph(
            tuple(builder.nodes_since(mark)), results, tuple(outputs), spec, reads=tuple(reads)
        )
        free = tuple(n for n in _outer(subgraph) if type(n.meta["val"]) not in _FIXED)
        subgraph = replace(subgraph, free=free)
        _demand_separate_memory(tracer, fn, subgraph, inputs, apart=apart)
    finally:
        tracer.mutated_storages |= written
    return subgraph


def _call_function(tracer: TracerProtocol, fn: Callable[..., Any], args: Args) -> Any:
    """Return the result of ``fn``, which the interpreter runs. Break the graph if ``fn`` raises."""
    # The function may never run, so the exception is not the program's exception yet.
    try:
        return tracer.trace.calls.call(fn, args, {})
    except Exception as error:
        text = f"which raises {type(error).__name__} ({error})"
        raise _refusal(fn, text) from error


def _refusal(fn: object, why: str) -> BaseException:
    """Return a graph break, after which torch's own operator runs ``fn``."""
    return graph_break("operator-function", f"{name_of(fn)} in a higher-order operator, {why},")


_FIXED = (torch.SymFloat, torch.SymBool)
"""Types of numbers that no operator takes as an operand. The graph is specialised for these numbers."""


def _outer(subgraph: Subgraph) -> tuple[fx.Node, ...]:
    """Return the nodes outside of ``subgraph`` that its nodes and results use, in the order of their use."""
    inner = set(subgraph.nodes)
    used = [source for node in subgraph.nodes for source in node.all_input_nodes]
    return tuple(
        dict.fromkeys(n for n in (*used, *subgraph.results) if n not in inner and n.op != "get_attr")
    )


def _demand_separate_memory(
    tracer: TracerProtocol, fn: object, subgraph: Subgraph, inputs: Sequence[torch.Tensor], *, apart: bool
) -> None:
    """Break the graph if the function writes to outside tensors.

    ``apart``: break the graph also if a result shares memory with an input or with another result.
    """
    values = [node.meta["val"] for node in subgraph.free]
    if not all(isinstance(value, (torch.Tensor, torch.SymInt)) for value in values):
        raise _refusal(fn, "which uses something that is no tensor or number")
    outside = [value for value in (*inputs, *values) if isinstance(value, torch.Tensor)]
    if any(map(is_wrapped, outside)):
        raise _refusal(fn, "inside of a torch.func transform")
    memory = {value.untyped_storage()._cdata for value in outside}
    if memory & tracer.mutated_storages:
        raise _refusal(fn, "which writes to a tensor from outside")
    storages = [value.untyped_storage()._cdata for value in subgraph.outputs]
    if apart and (memory.intersection(storages) or len(set(storages)) < len(storages)):
        raise _refusal(fn, "which returns memory of its inputs, or the same memory twice")


def cut_out(tracer: TracerProtocol, subgraph: Subgraph, free: Sequence[fx.Node]) -> fx.GraphModule:
    """Copy the nodes into a module. Its inputs are the function's inputs, then the ``free`` nodes."""
    graph = fx.Graph()
    copies: dict[fx.Node, Any] = {
        node: tracer.specialize(node.meta["val"])
        for node in _outer(subgraph)
        if type(node.meta["val"]) in _FIXED
    }
    inputs = [node for node in subgraph.nodes if node.target is parameter]
    for position, source in enumerate((*inputs, *free)):
        copies[source] = graph.placeholder(f"arg{position}")
        copies[source].meta = dict(source.meta)
    for node in subgraph.nodes:
        if node.target is not parameter:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    results = tuple(copies[node] for node in subgraph.results)
    output = graph.output(results[0] if subgraph.is_single else results)
    output.meta["val"] = subgraph.outputs[0] if subgraph.is_single else subgraph.outputs
    close_bodies(tracer.builder, graph)
    graph.lint()
    return make_graph_module(root_of(graph, tracer.builder.modules), graph, "Subgraph")
