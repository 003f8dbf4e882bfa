"""Functions that an operator calls once, with its operands, where the program calls the operator (``wrap``).

The interpreter runs such a function in place, so its Python side effects are side effects of the program. Two
marker nodes enclose the nodes of the function. When the graph is closed, ``close_bodies`` moves the nodes between
the markers to a ``GraphModule`` and puts a node of the operator in their place. A graph that ends between the
markers loses them: its nodes are those of the plain call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from fxstack_capture.torch_compat import FakeTensor, tree_leaves
from fxstack_capture.torch_side.higher_order.graph_structure import structure_of
from fxstack_capture.torch_side.recording.graph import GraphBuilder, root_of
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_interchange.modules import make_graph_module

_CALL = "fxstack_call_of_body"
"""The key of the metadata of an end marker for its ``BodyCall``."""


def begin_body() -> None:
    """The target of the marker before the nodes of a function."""


def end_body() -> None:
    """The target of the marker after the nodes of a function. Its arguments: the first marker, the result nodes."""


_STRUCTURE = "fxstack_structure"
"""The key of the metadata of a shared ``GraphModule`` for its structure."""


MARKERS = frozenset({begin_body, end_body})


@dataclass(frozen=True, slots=True)
class BodyCall:
    """The node that replaces the nodes of a function."""

    target: Any
    """The operator."""
    attribute: str
    """The beginning of the name of the attribute that holds the function's graph."""
    arguments: Callable[[fx.Node, tuple[fx.Node, ...]], tuple[tuple[Any, ...], dict[str, Any]]]
    """Return the arguments of the node, from the node of the function's graph and the nodes of the operands."""
    meta: dict[str, Any]
    """Metadata for the function's ``GraphModule``."""
    is_shared: bool = False
    """Whether calls of equal functions have one ``GraphModule``."""


def run_in_place(tracer: TracerProtocol, call: BodyCall, run: Callable[[], Any]) -> Any:
    """Return the result of ``run``, which calls the function in the interpreter, between two markers."""
    builder = tracer.builder
    builder.mark()
    start = _mark(tracer, begin_body, ())
    result = run()
    fakes = [leaf for leaf in tree_leaves(result) if isinstance(leaf, FakeTensor) and builder.is_known(leaf)]
    makers = dict.fromkeys(node for fake in fakes if (node := builder.maker_of(fake)) is not None)
    _mark(tracer, end_body, (start, tuple(makers))).meta[_CALL] = call
    return result


def _mark(tracer: TracerProtocol, target: Callable[[], None], args: tuple[Any, ...]) -> fx.Node:
    """Add a marker node."""
    node = tracer.builder.add("call_function", target, args, {})
    node.meta.update(val=None, example_value=None)
    tracer.annotate(node)
    return node


def close_bodies(builder: GraphBuilder, graph: fx.Graph) -> None:
    """Replace the markers of ``graph`` and the nodes between them by nodes of the operators."""
    ends = graph.find_nodes(op="call_function", target=end_body)
    closed = {node.args[0] for node in ends}
    for node in graph.find_nodes(op="call_function", target=begin_body):
        if node not in closed:
            graph.erase_node(node)
    for node in ends:  # the end of an inner function comes before the end of the outer function
        _close(builder, graph, node)


def _close(builder: GraphBuilder, graph: fx.Graph, end: fx.Node) -> None:
    """Replace one pair of markers and the nodes between them."""
    start, results = end.args
    assert isinstance(start, fx.Node)
    assert isinstance(results, tuple)
    nodes = _between(start, end)
    if nodes:
        _move_elements(nodes, end)
        nodes = _between(start, end)
        _replace(builder, graph, end, nodes, results)
    graph.erase_node(end)
    for node in reversed(nodes):
        graph.erase_node(node)
    graph.erase_node(start)


def _between(start: fx.Node, end: fx.Node) -> list[fx.Node]:
    """Return the nodes between two nodes."""
    nodes = []
    node = start.next
    while node is not end:
        nodes.append(node)
        node = node.next
    return nodes


def _move_elements(nodes: Iterable[fx.Node], end: fx.Node) -> None:
    """Move the nodes that take elements of containers to before ``end``, so that no container is an output."""
    work = list(nodes)
    for node in work:
        if isinstance(node.meta.get("val"), (tuple, list, dict)):
            for user in node.users:
                if user.target is operator.getitem and user not in work:
                    end.prepend(user)
                    work.append(user)


def _replace(
    builder: GraphBuilder, graph: fx.Graph, end: fx.Node, nodes: Sequence[fx.Node], results: Sequence[Any]
) -> None:
    """Add the node of the operator before ``end``, and let the users of ``nodes`` outside use its elements."""
    inner = {*nodes, end}
    operands = tuple(
        dict.fromkeys(
            source
            for node in nodes
            for source in node.all_input_nodes
            if source not in inner and source.op != "get_attr"
        )
    )
    escaping = [node for node in nodes if any(user not in inner for user in node.users)]
    outputs = tuple(dict.fromkeys([*(node for node in results if node in inner), *escaping]))
    call: BodyCall = end.meta[_CALL]
    module = _module_of(builder, nodes, operands, outputs)
    module.meta.update(call.meta)
    with graph.inserting_before(end):
        body = graph.get_attr(_register(builder, call, module))
        args, kwargs = call.arguments(body, operands)
        node = graph.call_function(call.target, args, kwargs)
        node.meta.update({key: value for key, value in end.meta.items() if key != _CALL})
        values = tuple(output.meta.get("val") for output in outputs)
        node.meta.update(val=values, example_value=values)
        for index, output in enumerate(outputs):
            element = graph.call_function(operator.getitem, (node, index))
            element.meta.update(output.meta)
            output.replace_all_uses_with(element, delete_user_cb=lambda user: user not in inner)
            if not element.users:
                graph.erase_node(element)


def _register(builder: GraphBuilder, call: BodyCall, module: fx.GraphModule) -> str:
    """Return the key of ``module`` in the modules of ``builder``, or of an equal module that calls may share."""
    if call.is_shared:
        structure = structure_of(module)
        for key, other in builder.modules.items():
            if structure is not None and other.meta.get(_STRUCTURE) == structure:
                return key
        module.meta[_STRUCTURE] = structure
    return builder.register_module(call.attribute, module)


def _module_of(
    builder: GraphBuilder, nodes: Iterable[fx.Node], operands: Iterable[fx.Node], outputs: tuple[fx.Node, ...]
) -> fx.GraphModule:
    """Copy ``nodes`` to a module whose inputs are ``operands`` and whose result is the tuple of ``outputs``."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for source in operands:
        copies[source] = graph.placeholder(source.name)
        copies[source].meta = dict(source.meta)

    def copy_of(source: fx.Node) -> fx.Node:
        if source not in copies:  # a nested graph that the outer graph has loaded
            copies[source] = graph.get_attr(str(source.target))
        return copies[source]

    for node in nodes:
        copies[node] = graph.node_copy(node, copy_of)
    values = tuple(node.meta.get("val") for node in outputs)
    graph.output(tuple(copies[node] for node in outputs)).meta.update(val=values, example_value=values)
    return make_graph_module(root_of(graph, builder.modules), graph, "Body")
