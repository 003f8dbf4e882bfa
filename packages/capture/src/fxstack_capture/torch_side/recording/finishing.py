"""Close the graph: write the outputs, remove unused nodes, and guard the relations between inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import AllDistinct, NoOverlap, SharesStorage
from fxstack_capture.shapes.symbolic.guards import check_strict, shape_guards
from fxstack_capture.sources import Source
from fxstack_capture.torch_side.higher_order.inline_calls import MARKERS, close_bodies
from fxstack_capture.torch_side.recording.graph import SYMBOLIC, root_of, takes_element
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.rules import profiler_ranges
from fxstack_capture.torch_side.subclasses.fake_classes import redefines, shown_class
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapper
from fxstack_capture.trace.records import CapturedCode
from fxstack_interchange.modules import make_graph_module

_SET_GRAD = torch_compat.set_grad_enabled


def finish(tracer: TracerProtocol, outputs: Sequence[Any]) -> CapturedCode:
    """Close the graph of a trace, and return the captured code for the backend.

    ``outputs`` become one flat tuple in the given order.
    """
    if tracer.transforms.inside:
        raise graph_break("unsupported-call", "a torch.func transform that the frame does not leave")
    builder = tracer.builder
    graph = builder.graph
    tracer.hooks.close(outputs)
    profiler_ranges.end_all(tracer)
    nodes = tuple(_output(tracer, value) for value in outputs)
    _write_assertions(tracer)
    output = graph.output(nodes)
    values = tuple(node.meta["val"] if isinstance(node, fx.Node) else node for node in nodes)
    output.meta.update(val=values, example_value=values)
    _remove_idle_state_changes(graph, grad_enabled=tracer.state.entry[0][0])
    _remove_unused(graph)
    _bind_symbols(tracer)
    placeholders = graph.find_nodes(op="placeholder")
    _put_back_layouts(tracer, placeholders)
    check_strict(tracer.geometry)
    tracer.wrappers.demand_same_parts()
    guard_relations(tracer)
    for source, check, stack in shape_guards(tracer.geometry):
        tracer.trace.guards.add(source, check, stack)
    if tracer.geometry.is_used:
        tracer.geometry.env.close()
    checkpoints = tracer.notes.checkpointed(graph.nodes)
    close_bodies(builder, graph)
    graph.lint()
    return CapturedCode(
        graph_module=make_graph_module(root_of(graph, builder.modules), graph, "CapturedGraph"),
        inputs=tuple(builder.inputs[node] for node in placeholders),
        example_inputs=tuple(node.meta["val"] for node in placeholders),
        overrides_classes=tracer.overrides.has_classes or tracer.wrappers.used,
        redefined=tuple(
            position for position, node in enumerate(placeholders) if _redefines(node.meta["val"])
        ),
        overrides_modes=bool(tracer.outer_modes),
        checkpoints=checkpoints,
        demands=partial(shape_guards, tracer.geometry),
    )


def _put_back_layouts(tracer: TracerProtocol, placeholders: Sequence[fx.Node]) -> None:
    """Set fakes with the layout of the inputs at the start of the graph as the values of the placeholders."""
    # The trace works on one fake per input, and ``t_()`` may have changed the layout of the fake.
    values = [node.meta["val"] for node in placeholders]
    with tracer.unrecorded():
        entered = tracer.faker.fakes_at_start(values)
    for node, value in zip(placeholders, entered, strict=True):
        if value is not node.meta["val"]:
            node.meta.update(val=value, example_value=value)


def _redefines(value: object) -> bool:
    """Return whether the value of a placeholder has a user's class that replaces methods of tensors."""
    cls = shown_class(value) if isinstance(value, torch.Tensor) else None
    return cls is not None and redefines(cls)


def _output(tracer: TracerProtocol, value: object) -> Any:
    """Return the node of a graph output, which is a tensor or a symbolic number."""
    if isinstance(value, torch.Tensor):
        return tracer.builder.node_of(value)
    if isinstance(value, SYMBOLIC):
        return tracer.symbols.node_of(value)
    raise graph_break("tracing-error", f"a {type(value).__qualname__} cannot be a graph output")


def _write_assertions(tracer: TracerProtocol) -> None:
    """Write assertions of the assumptions about data-dependent numbers, directly after the numbers."""
    # A later stage that traces the graph again sees the assertion before the operators that rely on the
    # assertion.
    if not tracer.geometry.is_used:
        return
    env = tracer.geometry.env
    done: set[Any] = set()
    graph = tracer.builder.graph
    order = {node: (index, 0) for index, node in enumerate(graph.nodes)}
    for assertions in list(env.deferred_runtime_asserts.values()):
        for assertion in assertions:
            if assertion.expr in done or not tracer.symbols.can_compute(assertion.expr):
                continue
            done.add(assertion.expr)
            end = graph._root.prev
            condition = env.create_symboolnode(assertion.expr)
            node = tracer.symbols.assumed(assertion.expr, condition)
            message = f"Runtime assertion failed for expression {assertion.expr}"
            graph.call_function(torch.ops.aten._assert_scalar.default, (node, message)).meta["val"] = None
            _move_up(end.next, tracer.builder.last_placeholder, order)


def _move_up(first: fx.Node, start: fx.Node, order: dict[fx.Node, tuple[int, int]]) -> None:
    """Move ``first`` and all nodes after it behind the last node that they use, but not before ``start``."""
    new = []
    while first.op != "root":
        new.append(first)
        first = first.next
    new = [node for node in new if node.op != "placeholder"]
    needed = {node for moved in new for node in moved.all_input_nodes}.difference(new)
    computed = [node for node in needed if node.op != "placeholder"]
    last = max(computed, key=order.__getitem__, default=start)
    for node in new:
        last.append(node)
        order[node] = (order.get(last, (-1, 0))[0], len(order))
        last = node


def _bind_symbols(tracer: TracerProtocol) -> None:
    """Make every symbol in the size of an input an input of the graph, when the graph is closed."""
    if not tracer.geometry.is_used:
        return
    tensors = [n.meta["val"] for n in tracer.builder.graph.nodes if n.op == "placeholder"]
    numbers = [
        number
        for tensor in tensors
        if isinstance(tensor, torch.Tensor) and tensor._has_symbolic_sizes_strides
        for number in (*tensor.size(), *tensor.stride(), tensor.storage_offset())
        if isinstance(number, torch.SymInt)
    ]
    for number in numbers:
        for symbol in sorted(number.node.expr.free_symbols, key=str):
            tracer.symbols.bind_input(symbol)


def _remove_unused(graph: fx.Graph) -> None:
    """Remove unused inputs, unused elements of results and unused size computations."""
    # Unused operators stay. A later stage knows which operators draw random numbers or have effects.
    for node in reversed(graph.nodes):
        if not node.users and (node.op == "placeholder" or _is_free(node)):
            graph.erase_node(node)


def _is_free(node: fx.Node) -> bool:
    """Return whether an unused node may be removed: it computes sizes, or takes an element that is no tensor."""
    if node.op != "call_function":
        return False
    if node.target is torch.ops.aten.detach.default:  # of a value that autograd would have saved
        return True
    if isinstance(node.meta.get("val"), SYMBOLIC):
        return getattr(node.target, "__module__", None) in ("_operator", "torch", "math")
    return takes_element(node)


def _remove_idle_state_changes(graph: fx.Graph, *, grad_enabled: bool) -> None:
    """Remove changes of grad mode that have no effect, or that the next node replaces."""
    nodes = [node for node in graph.nodes if node.op != "placeholder"]
    for node, following in pairwise(nodes):
        if node.target is _SET_GRAD and following.target is _SET_GRAD:
            graph.erase_node(node)
    current: object = grad_enabled
    for node in list(graph.nodes):
        if node.target in MARKERS:
            current = None  # an operator may change the mode for its function
        if node.target is _SET_GRAD:
            if node.args[0] == current:
                graph.erase_node(node)
            current = node.args[0]


def guard_relations(tracer: TracerProtocol) -> None:
    """Guard that different inputs stay different objects. Guard the aliasing of written inputs."""
    inputs = tracer.inputs()
    if len(inputs) < 2:
        return
    first, *others = (source for _, _, source in inputs)
    tracer.trace.guard(first, AllDistinct(tuple(others)))
    groups: dict[int, list[tuple[torch.Tensor, Source]]] = {}
    for fake, real, source in inputs:
        if not is_wrapper(fake):  # the inner tensors of a wrapper are inputs, too
            groups.setdefault(fake.untyped_storage()._cdata, []).append((real, source))
    written = (tracer.mutated_storages | tracer.storages.compared_storages) & groups.keys()
    if not written:
        return
    for storage in sorted(written):
        _guard_together(tracer, groups[storage])
    # Tensors on the meta device have no memory. All have the address 0.
    placed = {key: [s for _, s in group] for key, group in groups.items() if not group[0][0].is_meta}
    if len(placed) > 1 and written & placed.keys():
        _guard_apart(tracer, placed, written & placed.keys())


def _guard_together(tracer: TracerProtocol, group: list[tuple[torch.Tensor, Source]]) -> None:
    """Guard that the inputs that share a written storage still share the storage, at the same offsets."""
    if len(group) < 2:
        return
    (_, first), *others = group
    tracer.trace.guard(first, SharesStorage(tuple(source for _, source in others)))
    for real, source in group:
        tracer.guard_offset(real, source)


def _guard_apart(tracer: TracerProtocol, groups: dict[int, list[Source]], written: set[int]) -> None:
    """Guard that a written input shares memory with no input outside of its group."""
    # Two inputs that the graph only reads may share memory.
    _demand_apart(tracer, written)
    first, *others = (sources[0] for sources in groups.values())
    tracer.trace.guard(first, NoOverlap(tuple(others)))
    # ``_guard_together`` guards the inputs of a written group.
    further = [source for key, sources in groups.items() if key not in written for source in sources[1:]]
    for storage in sorted(written) if further else ():
        for source in further:  # one by one: they may share memory with each other
            tracer.trace.guard(groups[storage][0], NoOverlap((source,)))


def _demand_apart(tracer: TracerProtocol, written: set[int]) -> None:
    """Break the graph if a written storage overlaps the memory of another storage."""
    # Two storage objects may cover the same memory. Their fakes do not see each other's writes.
    memory = {
        fake.untyped_storage()._cdata: (storage.data_ptr(), storage.nbytes())
        for fake, real, _ in tracer.inputs()
        if not is_wrapper(fake) and not real.is_meta and (storage := real.untyped_storage()).nbytes()
    }
    by_address = sorted((start, start + size, key) for key, (start, size) in memory.items())
    open_until = written_until = 0  # the ends of the storages before, of all and of those that are written
    for start, end, key in by_address:
        if start < written_until or (key in written and start < open_until):
            raise graph_break(
                "unsupported-tensor",
                "an input that is written to and shares memory with another through different storages:",
            )
        open_until = max(open_until, end)
        written_until = max(written_until, end if key in written else 0)
