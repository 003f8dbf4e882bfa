"""The nested graph of a function that ``torch.cond``, ``while_loop``, ``map`` or ``scan`` calls.

The interpreter runs the function on new fakes (``parameter`` nodes). The new nodes then move from the graph
into a ``GraphModule``. The nodes of the outer graph that the function uses (closures over tensors, and
symbolic sizes) become additional inputs.

The trace does not know how often the function will run. Therefore an effect of the function other than its
results breaks the graph, and plain Python runs the function. Guards of the function stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_compat import FakeTensor, pytree
from fxstack_capture.torch_side.autograd.state_reads import StateLocation, note_reads
from fxstack_capture.torch_side.higher_order import nested_checks
from fxstack_capture.torch_side.higher_order.inline_calls import close_bodies
from fxstack_capture.torch_side.higher_order.surroundings import Surroundings
from fxstack_capture.torch_side.recording.execution import name_of, place_of, program_function
from fxstack_capture.torch_side.recording.graph import root_of
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapped
from fxstack_capture.trace.protocols import Interpreter
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
    leaves: tuple[Any, ...] = ()
    """The flat results as the function returned them. Numbers among them are tensors in ``outputs``."""
    place: str = ""
    """Where the program's function has returned, as `` (file:line)``. Empty for a function of a layer."""
    writes: Mapping[int, str] = field(default_factory=dict)
    """The storages that the function writes to, with the program's line of the first write to each."""


class _WriteLog(set[int]):
    """The storages that a function writes to. ``lines`` has the program's line of the first write to each."""

    def __init__(self, tracer: TracerProtocol) -> None:
        super().__init__()
        self._tracer = tracer
        self.lines: dict[int, str] = {}

    def add(self, storage: int) -> None:
        """Add a storage, and note the program's current line."""
        super().add(storage)
        stack = self._tracer.trace.interp.user_stack()
        if storage not in self.lines and stack:
            file, line, name = stack[-1]
            self.lines[storage] = f"{file}:{line} in {name}"


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
    arrange: Callable[[list[torch.Tensor]], Sequence[Any]] | None = None,
    as_tensor: Callable[[Any], torch.Tensor | None] | None = None,
) -> Subgraph:
    """Call ``fn`` on ``inputs``, which are new fakes. The caller removes the nodes (``roll_back``).

    ``nested`` is the structure of the arguments, or ``None`` if ``inputs`` are the arguments. ``arrange`` makes the
    arguments of the inputs instead. ``apart`` requires that results have their own memory. ``as_tensor`` makes
    tensors of results that are numbers, and returns ``None`` for other results. With ``as_tensor`` the
    caller handles shared memory and writes (``bodies``).
    """
    builder = tracer.builder
    mark = builder.mark()
    for fake in inputs:
        builder.bind(fake, builder.add("call_function", parameter, (), {}))
    log = _WriteLog(tracer)
    written, tracer.mutated_storages = tracer.mutated_storages, log
    before, facts = Surroundings(tracer.trace, fn), nested_checks.facts(tracer)
    try:
        with tracer.assumptions.none_inside(nested=True), _noting_returns(tracer.trace.interp):
            args = inputs if nested is None else unflatten(tracer, list(inputs), nested)
            args = args if arrange is None else arrange(list(inputs))
            with note_reads(tracer.trace.objects) as reads:
                value = _call_function(tracer, fn, tuple(args))
            leaves, spec = flatten(tracer, value)
            if tracer.transforms.lifting is not None:
                leaves = tracer.transforms.lifting.fakes_of(leaves)
            place = _place_of_return(tracer, fn)
            outputs = _tensors(fn, leaves, as_tensor, place)
        results = tuple(builder.node_of(out) for out in outputs)
        if before.have_changed():
            raise _refusal(fn, f"which {before.change()}")
        if nested_checks.has_outside_assumption(tracer, mark, facts):
            raise _refusal(fn, "which assumes something of a number from outside")
        subgraph = Subgraph(
            tuple(builder.nodes_since(mark)),
            results,
            outputs,
            spec,
            reads=tuple(reads),
            leaves=tuple(leaves),
            place=place,
            writes=log.lines,
        )
        builder.symbols.leave(subgraph.nodes)
        free = tuple(n for n in _outer(subgraph) if type(n.meta["val"]) not in _FIXED)
        subgraph = replace(subgraph, free=free)
        _demand_separate_memory(tracer, fn, subgraph, inputs, apart=apart, is_handled=as_tensor is not None)
    finally:
        written.update(log)  # ``written`` may be the log of a function around this one
        tracer.mutated_storages = written
    return subgraph


@contextmanager
def _noting_returns(interp: Interpreter) -> Iterator[None]:
    """Note where functions return, for the texts of graph breaks."""
    before, interp.return_lines = interp.return_lines, {}
    try:
        yield
    finally:
        interp.return_lines = before


def _place_of_return(tracer: TracerProtocol, fn: object) -> str:
    """Return the line at which the program's function in ``fn`` has returned. For a C function, return its name."""
    function, code = program_function(fn)
    line = (tracer.trace.interp.return_lines or {}).get(code) if code else None
    return f" ({name_of(function) if line is None or code is None else f'{code.co_filename}:{line}'})"


def _tensors(
    fn: object, leaves: Sequence[Any], as_tensor: Callable[[Any], torch.Tensor | None] | None, place: str
) -> tuple[torch.Tensor, ...]:
    """Return the flat results of a function as tensors. Break the graph for a result that cannot be a tensor."""
    if as_tensor is None:
        if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise _refusal(fn, "which does not return tensors alone")
        return tuple(leaves)
    made = [
        leaf if isinstance(leaf, torch.Tensor) else as_tensor(leaf) for leaf in leaves if leaf is not None
    ]
    if any(leaf is None for leaf in made):
        kinds = sorted({type(leaf).__name__ for leaf, x in zip(leaves, made, strict=False) if x is None})
        raise _refusal(fn, f"which returns {', '.join(kinds)}{place}: no tensors, numbers or None")
    return tuple(leaf for leaf in made if leaf is not None)


def trace_below_layers(
    tracer: TracerProtocol, fn: Callable[..., Any], values: Sequence[Any], gradient: bool
) -> Subgraph:
    """Really call ``fn`` on new fakes in place of the tensors among ``values``, below all layers of ``torch.func``.

    The dispatch mode of ``transforms`` records the operators. The caller removes the nodes (``roll_back``).
    """
    builder = tracer.builder
    mark = builder.mark()
    args = [fake_of(tracer, value) if isinstance(value, torch.Tensor) else value for value in values]
    for fake in (arg for arg in args if isinstance(arg, torch.Tensor)):
        builder.bind(fake, builder.add("call_function", parameter, (), {}))
    with torch.set_grad_enabled(gradient), tracer.transforms.recording(on=True):
        found = fn(*args)
        found = found if isinstance(found, (tuple, list)) else (found,)
        # The layers make some zeros without a call that the mode could record.
        outputs = tuple(x if builder.is_known(x) else x.clone() for x in found)
    results = tuple(builder.node_of(out) for out in outputs)
    spec = pytree.tree_structure((None,) * len(outputs))
    subgraph = Subgraph(tuple(builder.nodes_since(mark)), results, outputs, spec, leaves=outputs)
    builder.symbols.leave(subgraph.nodes)
    free = tuple(n for n in _outer(subgraph) if type(n.meta["val"]) not in _FIXED)
    return replace(subgraph, free=free)


def _call_function(tracer: TracerProtocol, fn: Callable[..., Any], args: Args) -> Any:
    """Return the result of ``fn``, which the interpreter runs. Break the graph if ``fn`` raises."""
    # The function may never run, so the exception is not the program's exception yet. The error of a trial stands for
    # an error of the whole graph when it runs.
    try:
        return tracer.trace.calls.call(fn, args, {})
    except Exception as error:
        if error is tracer.trace.trial_error:
            raise
        text = f"which raises {type(error).__name__} ({error})"
        raise _refusal(fn, text) from error


def _refusal(fn: object, why: str) -> BaseException:
    """Return a graph break, after which torch's own operator runs ``fn``."""
    return graph_break("operator-function", f"{place_of(fn)} in a higher-order operator, {why},")


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
    tracer: TracerProtocol,
    fn: object,
    subgraph: Subgraph,
    inputs: Sequence[torch.Tensor],
    *,
    apart: bool,
    is_handled: bool,
) -> None:
    """Break the graph if the function writes to outside tensors.

    ``apart``: break the graph also if a result shares memory with an input or with another result. ``is_handled``:
    the caller handles both.
    """
    values = [node.meta["val"] for node in subgraph.free]
    if not all(isinstance(value, (torch.Tensor, torch.SymInt)) for value in values):
        raise _refusal(fn, "which uses something that is no tensor or number")
    outside = [value for value in (*inputs, *values) if isinstance(value, torch.Tensor)]
    if any(map(is_wrapped, outside)):
        raise _refusal(fn, "inside of a torch.func transform")
    if is_handled:
        return
    memory = {value.untyped_storage()._cdata for value in outside}
    if memory & tracer.mutated_storages:
        lines = [subgraph.writes[storage] for storage in sorted(memory & subgraph.writes.keys())]
        raise _refusal(fn, f"which writes to a tensor from outside ({', '.join(lines)})")
    storages = [value.untyped_storage()._cdata for value in subgraph.outputs]
    if apart and (memory.intersection(storages) or len(set(storages)) < len(storages)):
        raise _refusal(fn, "which returns memory of its inputs, or the same memory twice")


def cut_out(tracer: TracerProtocol, subgraph: Subgraph, free: Sequence[fx.Node]) -> fx.GraphModule:
    """Copy the nodes into a module. Its inputs are the function's inputs, then the ``free`` nodes."""
    graph, copies = copy_nodes(tracer, subgraph, (*parameters_of(subgraph), *free))
    results = tuple(copies[node] for node in subgraph.results)
    output = graph.output(results[0] if subgraph.is_single else results)
    output.meta["val"] = subgraph.outputs[0] if subgraph.is_single else subgraph.outputs
    return finish(tracer, graph)


def parameters_of(subgraph: Subgraph) -> list[fx.Node]:
    """Return the nodes that represent the inputs of a traced function."""
    return [node for node in subgraph.nodes if node.target is parameter]


def copy_nodes(
    tracer: TracerProtocol,
    subgraph: Subgraph,
    inputs: Sequence[fx.Node],
    same: Mapping[fx.Node, fx.Node] = MappingProxyType({}),
) -> tuple[fx.Graph, dict[fx.Node, Any]]:
    """Copy the nodes of a function into a new graph, whose placeholders represent ``inputs``.

    ``same``: for other inputs of the function, the node of ``inputs`` whose placeholder the input gets. Return
    the graph, which has no output yet, and the copy of each node.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, Any] = {
        node: tracer.specialize(node.meta["val"])
        for node in _outer(subgraph)
        if type(node.meta["val"]) in _FIXED
    }
    for position, source in enumerate(inputs):
        copies[source] = graph.placeholder(f"arg{position}")
        copies[source].meta = dict(source.meta)
    copies |= {node: copies[source] for node, source in same.items()}
    for node in subgraph.nodes:
        if node.target is not parameter:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return graph, copies


def finish(tracer: TracerProtocol, graph: fx.Graph) -> fx.GraphModule:
    """Return the module of a finished nested graph."""
    close_bodies(tracer.builder, graph)
    graph.lint()
    return make_graph_module(root_of(graph, tracer.builder.modules), graph, "Subgraph")
