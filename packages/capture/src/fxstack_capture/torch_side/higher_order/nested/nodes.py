"""The nodes of branches and loops: from traced functions and operands to the results of a node.

The functions are those of the program, or those that layers of ``torch.func`` have made of them (``record_below``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fxstack_capture.torch_side.autograd.accumulation import is_dense
from fxstack_capture.torch_side.higher_order import subgraphs
from fxstack_capture.torch_side.higher_order.nested import branches
from fxstack_capture.torch_side.higher_order.nested.bodies import Body, Written, storage_of, zip_nodes
from fxstack_capture.torch_side.higher_order.nested.calls import GraphsOfCall, Tensors, any_gradient
from fxstack_capture.torch_side.higher_order.nested.derived_rules import Call
from fxstack_capture.torch_side.higher_order.nested.results import difference_of_kinds, difference_of_tensors
from fxstack_capture.torch_side.higher_order.subgraphs import Subgraph
from fxstack_capture.torch_side.recording.protocol import TracerProtocol

_OPERATORS = torch.ops.higher_order


def demand_same_carry(
    call: GraphsOfCall, body: Subgraph, carried: Sequence[Any], initial: Sequence[torch.Tensor]
) -> None:
    """Break the graph if the first results of a loop's function do not match the values that the loop carries."""
    leaves = body.leaves
    if len(leaves) < len(carried):
        raise call.refuse(
            f"whose function returns {len(leaves)} values for {len(carried)} carried ones{body.place}"
        )
    outputs = iter(body.outputs)
    for index, (value, leaf, like) in enumerate(zip(carried, leaves, initial, strict=False)):
        difference = difference_of_kinds(value, leaf) or difference_of_tensors(like, next(outputs))
        if difference is not None:
            text = difference.text("before the loop", f"after one iteration{body.place}")
            raise call.refuse(f"whose carry {index} changes: {text}")


def add_cond(
    call: GraphsOfCall,
    predicate: tuple[Any, Any],
    functions: tuple[Subgraph, Subgraph],
    operands: Sequence[Any],
    nodes: Sequence[fx.Node],
) -> tuple[list[branches.Joined], list[Written], Tensors]:
    """Add the node of ``cond``. ``predicate``: its node and value. ``nodes``: those of the tensors among ``operands``.

    Return the joined results, what the branches write to, and the results of the node.
    """
    joined = branches.join(call, *functions)
    inputs = tuple(dict.fromkeys((*nodes, *call.free)))
    written = call.find_writes(inputs, ())
    bodies = [Body(call.tracer, branch, inputs, zip_nodes(branch, nodes)) for branch in functions]
    likes = branches.complete(call.tracer, bodies, joined, written, functions)
    chosen, pred = predicate
    gradient = any_gradient((pred, *operands), call.free)
    names = ("cond_true", "cond_false")
    graphs = call.install([(name, body.module()) for name, body in zip(names, bodies, strict=True)])
    results = call.make_results([*likes, *(each.base for each in written)], gradient=gradient)
    return joined, written, call.add((chosen, *graphs, call.current_values(inputs, written)), results)


def add_while_loop(
    call: GraphsOfCall, functions: tuple[Subgraph, Subgraph], initial: Tensors, nodes: Sequence[fx.Node]
) -> tuple[Loop, Tensors]:
    """Add the node of ``while_loop``. ``nodes``: those of ``initial``, then those of the other operands."""
    test, body = functions
    loop = Loop(call, initial, nodes[len(initial) :])
    if loop.lines_written(test):
        raise call.refuse(f"whose condition writes to a tensor ({loop.lines_written(test)})")
    test_graph, body_graph = loop.body(test), loop.body(body)
    test_graph.redirect(loop.written, loop.tensors(test))
    _as_truth(test_graph)
    loop.complete(body_graph, body)
    modules = [("cond_fn", test_graph.module(is_single=True)), ("body_fn", body_graph.module())]
    gradient = any_gradient((*initial, *(n.meta["val"] for n in nodes)), call.free)
    graphs = call.install(modules)
    is_stacked = call.operator is _OPERATORS.while_loop_stack_output
    likes = stack_iterations(call, loop.likes) if is_stacked else loop.likes
    results = call.make_results(likes, gradient=gradient)
    values = call.current_values(loop.written_nodes, loop.written)
    node_args = (*graphs, (*nodes[: len(initial)], *values), loop.invariant)
    return loop, call.add(node_args, results)


def _as_truth(test: Body) -> None:
    """Make the result of a loop's condition a boolean tensor without dimensions."""
    node, value = test.results[0]
    if value.dim():
        node, value = test.call(torch.reshape, (node, ()), (value, ()))
    if value.dtype is not torch.bool or node.op == "placeholder":
        node, value = test.call(torch.ne, (node, 0), (value, 0))
    test.results[0] = node, value


class Loop:
    """The inputs of the functions of one loop: carried values, slices, then what is the same in all iterations.

    ``carried``: the first values. ``further``: the outer nodes of operands that all iterations get. ``slices``: the
    parts of operands for one iteration. A tensor that a function writes to is carried, too.
    """

    def __init__(
        self,
        call: GraphsOfCall,
        carried: Tensors,
        further: Sequence[fx.Node],
        slices: Sequence[torch.Tensor] = (),
    ) -> None:
        self._call = call
        self._carried = carried
        self._slices = slices
        self._further = list(further)
        outer = tuple(dict.fromkeys((*further, *call.free)))
        self._outer = {n: n.meta["val"] for n in outer if isinstance(n.meta["val"], torch.Tensor)}
        self.written = call.find_writes(outer, carried)
        self.written_nodes = [each.node for each in self.written]
        self.invariant = tuple(n for n in outer if n not in self.written_nodes)

    @property
    def likes(self) -> Tensors:
        """The carried tensors and those written to, for the metadata of results."""
        return [*self._carried, *(each.base for each in self.written)]

    def lines_written(self, subgraph: Subgraph) -> str:
        """Return the program's lines at which a function writes to tensors from outside."""
        storages = {storage_of(each.base) for each in self.written} & subgraph.writes.keys()
        return ", ".join(subgraph.writes[storage] for storage in sorted(storages))

    def written_slices(self, subgraph: Subgraph) -> dict[int, Written]:
        """Return the slices that a function writes to, by position."""
        own = subgraphs.parameters_of(subgraph)[len(self._carried) :]
        outside = {storage_of(x) for x in (*self._outer.values(), *self._carried)}
        found: dict[int, Written] = {}
        for index, (node, part) in enumerate(zip(own, self._slices, strict=False)):
            storage = storage_of(part)
            if storage in subgraph.writes:
                line = subgraph.writes[storage]
                is_shared = storage in outside or sum(storage_of(x) == storage for x in self._slices) > 1
                if is_shared or self._call.operator is not _OPERATORS.map_impl or not is_dense(part):
                    raise self._call.refuse(f"whose function writes to a slice of an operand ({line})")
                found[index] = Written(part, node, line)
        return found

    def tensors(self, subgraph: Subgraph) -> dict[fx.Node, torch.Tensor]:
        """Return the outer tensor of each input node of a function."""
        own = subgraphs.parameters_of(subgraph)
        return {**self._outer, **dict(zip(own, (*self._carried, *self._slices), strict=False))}

    def body(self, subgraph: Subgraph) -> Body:
        """Return the nested graph of a function, with the inputs of all functions of the loop."""
        count, own = len(self._carried), len(self._carried) + len(self._slices)
        parameters = subgraphs.parameters_of(subgraph)
        inputs = (*parameters[:count], *self.written_nodes, *parameters[count:own], *self.invariant)
        return Body(self._call.tracer, subgraph, inputs, zip_nodes(parameters[own:], self._further))

    def complete(self, body: Body, subgraph: Subgraph, slices: Sequence[Written] = ()) -> None:
        """Let the nested graph return the carried values, the tensors written to, then the collected values.

        The last results are the slices that the function writes to.
        """
        tensors = self.tensors(subgraph)
        count, total = len(self._carried), len(body.results)
        body.isolate([*self.written, *slices], tensors)
        body.separate(tensors.values(), of=total)
        for index, like in enumerate(self._carried):
            body.lay_out(index, like)
        end = total + len(self.written)
        results = body.results
        body.results = [*results[:count], *results[total:end], *results[count:total], *results[end:]]


def add_over_slices(
    call: GraphsOfCall,
    body: Subgraph,
    carried: Tensors,
    sliced: tuple[Tensors, Tensors],
    nodes: Sequence[fx.Node],
) -> tuple[Loop, dict[int, Written], Tensors]:
    """Add the node of ``map_impl`` or ``scan``. ``sliced``: the tensors over which it iterates, and their slices.

    ``nodes``: those of ``carried``, of the sliced tensors, and of the other operands. Return the loop, the slices
    that the function writes to, and the results of the node.
    """
    (xs, slices), own = sliced, len(carried)
    loop = Loop(call, carried, nodes[own + len(xs) :], slices)
    graph = loop.body(body)
    written = loop.written_slices(body)
    loop.complete(graph, body, tuple(written.values()))
    if loop.written:  # the iterations of a map depend on each other
        call.operator = _OPERATORS.scan
    steps = stack_results(call, [value for _, value in graph.results[len(loop.likes) :]], xs[0].size(0))
    gradient = any_gradient([n.meta["val"] for n in nodes], call.free)
    is_map = call.operator is _OPERATORS.map_impl
    (module,) = call.install([("map_body" if is_map else "scan_combine_fn", graph.module())])
    results = call.make_results([*loop.likes, *steps], gradient=gradient)
    values = call.current_values(loop.written_nodes, loop.written)
    groups = [[*nodes[:own], *values], list(nodes[own : own + len(xs)])]
    results = call.add((module, *groups[1 if is_map else 0 :], loop.invariant), results)
    return loop, written, results


def stack_iterations(call: GraphsOfCall, tensors: Sequence[torch.Tensor]) -> Tensors:
    """Return the stacked values of all iterations of a loop, of unknown number, for metadata."""
    env = call.tracer.geometry.env
    with env.scalar_outputs_allowed():
        count = env.create_unbacked_symint()
    # Without an iteration, the result is the first value.
    env.constrain_symbol_range(count.node.expr, 1, 2**31)
    return stack_results(call, tensors, count)


def stack_results(call: GraphsOfCall, tensors: Sequence[torch.Tensor], length: Any) -> Tensors:
    """Return the stacked results of all iterations, with a new first dimension, for metadata."""
    with call.tracer.unrecorded(), call.tracer.mode, torch.no_grad():
        return [torch.empty((length, *x.size()), dtype=x.dtype, device=x.device) for x in tensors]


def tensors_of(values: Sequence[Any]) -> Tensors:
    """Return the tensors among ``values``."""
    return [value for value in values if isinstance(value, torch.Tensor)]


def record_below(tracer: TracerProtocol, derived: Call, operands: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Record a call of an operator below all layers of ``torch.func``, with the functions that the layers have made."""
    with tracer.transforms.recording(on=False), tracer.geometry.env.scalar_outputs_allowed():
        return _record_derived(tracer, derived, operands)


def _record_derived(
    tracer: TracerProtocol, derived: Call, operands: Sequence[Any]
) -> tuple[torch.Tensor, ...]:
    """Record a call of an operator with the functions of ``derived``."""
    call, functions = GraphsOfCall(tracer, derived.operator, below=True), derived.functions
    carries, *more = derived.counts or (0,)
    operands = [_without_overlap(tracer, x, index < carries) for index, x in enumerate(operands)]
    nodes = [tracer.builder.argument(value, []) for value in tensors_of(operands)]
    call.mark = tracer.builder.mark()
    trace = partial(call.trace_below, gradient=derived.gradients)
    if derived.operator is _OPERATORS.cond:
        pred, *rest = operands
        chosen = tracer.builder.argument(pred, [])
        call.mark = tracer.builder.mark()
        yes, no = (trace(function, rest) for function in functions)
        others = nodes[1:] if isinstance(pred, torch.Tensor) else nodes
        _, _, results = add_cond(call, (chosen, pred), (yes, no), rest, others)
        return tuple(results)
    initial = list(operands[:carries])
    if derived.operator in (_OPERATORS.while_loop, _OPERATORS.while_loop_stack_output):
        test, body = (trace(function, operands) for function in functions)
        demand_same_carry(call, body, initial, initial)
        return tuple(add_while_loop(call, (test, body), initial, nodes)[1])
    xs = list(operands[carries : carries + more[0]])
    slices = [x.detach()[0] for x in xs]
    body = trace(functions[0], [*initial, *slices, *operands[carries + more[0] :]])
    demand_same_carry(call, body, initial, initial)
    return tuple(add_over_slices(call, body, initial, (xs, slices), nodes)[2])


def _without_overlap(tracer: TracerProtocol, value: Any, is_carried: bool) -> Any:
    """Return a copy of an expanded tensor, for example the gradient of a sum, or of a carried value with gaps.

    Carried values keep their strides in all iterations, and an expanded tensor cannot be written.
    """
    if not isinstance(value, torch.Tensor):
        return value
    may_have_gaps = is_carried and not free_unbacked_symbols(value)
    if not (may_have_gaps or 0 in value.stride()) or is_dense(value):
        return value
    return tracer.record(torch.clone, (value,), {"memory_format": torch.contiguous_format})
