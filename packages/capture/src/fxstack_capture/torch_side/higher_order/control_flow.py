"""``torch.cond``, ``while_loop``, ``map``, ``scan`` and ``associative_scan`` as nodes with nested graphs.

The interpreter runs torch's Python code around the operators. This module has the rules of the operators. The
functions become graphs (``subgraphs``, ``bodies``). The results get the metadata that the operator returns.

A number that a loop carries, or that a function returns, is a tensor in the graphs (``results``). A tensor from
outside that a function writes to is a further operand and a further result, which the outer graph writes back.
An unsupported call breaks the graph, and torch's own operator decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.torch_compat import pytree
from fxstack_capture.torch_side.autograd.accumulation import is_dense
from fxstack_capture.torch_side.fakes.faker import with_history
from fxstack_capture.torch_side.higher_order import subgraphs
from fxstack_capture.torch_side.higher_order.nested import branches, derivations
from fxstack_capture.torch_side.higher_order.nested.bodies import Body, Written, covers, storage_of, zip_nodes
from fxstack_capture.torch_side.higher_order.nested.lifting import Lifting
from fxstack_capture.torch_side.higher_order.nested.results import (
    difference_of_kinds,
    difference_of_tensors,
    kind_of,
    number_of,
    tensor_of,
)
from fxstack_capture.torch_side.higher_order.subgraphs import Subgraph
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

Tensors = list[torch.Tensor]
Rule = Callable[[TracerProtocol, Any, Args, Kwargs], Any]

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
        lifting = tracer.transforms.lifting
        self.lifting: Lifting | None = None if lifting is None else lifting.claim()
        """The wrapped tensors that the functions use, if layers of ``torch.func`` are active around the call."""
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
        arrange: Callable[[Tensors], Sequence[Any]] | None = None,
        free_form: bool = False,
    ) -> Subgraph:
        """Trace a function on new fakes with the metadata of ``likes`` (see ``subgraphs.trace``).

        ``free_form``: the function may return numbers and shared memory, and may write to outside tensors.
        """
        inputs = [subgraphs.fake_of(self.tracer, like) for like in likes]
        as_tensor = partial(tensor_of, self.tracer) if free_form else None
        subgraph = subgraphs.trace(
            self.tracer, fn, inputs, nested, apart=apart, arrange=arrange, as_tensor=as_tensor
        )
        self.traced.append(subgraph)
        return subgraph

    def trace_below(self, fn: Callable[..., Any], values: Sequence[Any], *, gradient: bool) -> Subgraph:
        """Really call a function that layers of ``torch.func`` have made (see ``subgraphs.trace_below_layers``)."""
        subgraph = subgraphs.trace_below_layers(self.tracer, fn, values, gradient=gradient)
        self.traced.append(subgraph)
        return subgraph

    def modules(self) -> tuple[list[Any], tuple[fx.Node, ...]]:
        """Return a module for each function. All modules take the same free nodes after their own inputs."""
        free = self.free
        cut = [subgraphs.cut_out(self.tracer, subgraph, free) for subgraph in self.traced]
        name = self.operator.name()
        return self.install([(f"{name}_graph", module) for module in cut]), free

    @property
    def free(self) -> tuple[fx.Node, ...]:
        """The nodes of the outer graph that the functions use, and the sizes of the call."""
        return tuple(
            dict.fromkeys((*self.sizes, *(node for subgraph in self.traced for node in subgraph.free)))
        )

    def install(self, modules: Sequence[tuple[str, fx.GraphModule]]) -> list[Any]:
        """Move the functions out of the outer graph. ``modules``: the prefix of each name, and the module.

        Return their nodes, or the modules themselves below layers of ``torch.func``.
        """
        builder = self.tracer.builder
        builder.roll_back(self.mark)
        if self.lifting is not None:
            return [module for _, module in modules]
        return [builder.module(name, module) for name, module in modules]

    def operands(self, tensors: Sequence[Any]) -> list[fx.Node]:
        """Return the graph nodes of tensors and numbers, for the arguments of the operator's node."""
        return [self.tracer.builder.argument(value, []) for value in tensors]

    def write(self, node_args: Args, results: Tensors, spec: pytree.TreeSpec) -> Any:
        """Add the node of the operator, and return the results in the structure of the function's results."""
        return subgraphs.unflatten(self.tracer, self.add(node_args, results), spec)

    def add(self, node_args: Args, results: Tensors) -> Tensors:
        """Add the node of the operator, whose results are the fakes ``results``. Return the results.

        Under layers of ``torch.func``, the layers call the operator, and wrap the results.
        """
        if self.lifting is not None:
            args = fx.map_arg(node_args, self.lifting.value_of)
            self.lifting.end()
            call = partial(derivations.apply, partial(_record_below, self.tracer), self.operator, args)
            return list(self.tracer.transforms.run(call, (), {"gradients": torch.is_grad_enabled()}))
        builder = self.tracer.builder
        node = builder.add("call_function", self.operator, node_args, {})
        self.tracer.annotate(node)
        builder.bind(tuple(results), node)
        self.tracer.all_bound()
        return list(results)

    def find_writes(self, nodes: Sequence[fx.Node], own: Sequence[torch.Tensor]) -> list[Written]:
        """Return what the functions write to among the values of ``nodes``, outer nodes.

        Break the graph if a function writes to a tensor of ``own``, which the loop carries, or if no tensor covers
        the memory.
        """
        lines = {storage: line for subgraph in self.traced for storage, line in subgraph.writes.items()}
        tensors = {n: n.meta["val"] for n in nodes if isinstance(n.meta["val"], torch.Tensor)}
        written = []
        for storage, line in lines.items():
            group = {n: x for n, x in tensors.items() if storage_of(x) == storage}
            if any(storage_of(x) == storage for x in own):
                raise self.refuse(f"whose function writes to a value that the loop carries ({line})")
            if not group:
                continue  # memory of the function
            base = next((n for n, x in group.items() if covers(x, group.values())), None)
            if base is None:
                raise self.refuse(f"whose function writes to memory that several of its tensors share ({line})")
            if self.lifting is not None:
                raise self.refuse(f"whose function writes to a tensor under torch.func ({line})")
            written.append(Written(tensors[base], base, line))
        return written

    def write_back(self, written: Sequence[Written], values: Tensors) -> None:
        """Record the writes of the functions to outer tensors. ``values``: the tensors after the call."""
        for each, value in zip(written, values, strict=True):
            self.tracer.record(torch.Tensor.copy_, (each.base, value), {})

    def current_values(self, nodes: Sequence[fx.Node], written: Sequence[Written]) -> tuple[fx.Node, ...]:
        """Return ``nodes``, with copies in place of the tensors that the outer graph overwrites after the call."""
        # The derivative saves operands.
        if not torch.is_grad_enabled():
            return tuple(nodes)
        copies = {
            each.node: self.tracer.builder.node_of(self.tracer.record(torch.clone, (each.base,), {}))
            for each in written
        }
        return tuple(copies.get(node, node) for node in nodes)

    def make_results(self, likes: Sequence[torch.Tensor], *, gradient: bool) -> Tensors:
        """Return new fakes with the metadata of ``likes``. ``gradient``: floats require grad in grad mode."""
        with self.tracer.unrecorded(), self.tracer.mode, torch.no_grad():
            fakes = [torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device) for x in likes]
        if not (gradient and torch.is_grad_enabled()):
            return list(fakes)
        return [with_history(x) if x.dtype.is_floating_point or x.dtype.is_complex else x for x in fakes]

    def refuse(self, why: str) -> GraphBreak:
        """Return a graph break with the reason ``why``. Plain Python then runs torch's own operator."""
        return _refusal(self.operator, why)


def _symbols(tensors: Sequence[torch.Tensor]) -> list[torch.SymInt]:
    """Return the symbolic sizes of ``tensors`` that are single symbols, once each."""
    sizes = [size for x in tensors if isinstance(x, torch.Tensor) for size in x.size()]
    symbols = [s for s in sizes if isinstance(s, torch.SymInt) and s.node.expr.is_symbol]
    return list({size.node.expr: size for size in symbols}.values())


def any_gradient(operands: Sequence[Any], free: Sequence[fx.Node]) -> bool:
    """Return whether an operand or the value of a free node requires grad."""
    values = (*operands, *(node.meta["val"] for node in free))
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in values)


def _refusal(operator: Any, why: str) -> GraphBreak:
    """Return a graph break at a call of ``operator``, with the reason ``why``."""
    return graph_break("operator-function", f"{operator.name()} {why}")


def _demand_tensors(operator: Any, values: Sequence[Any]) -> None:
    """Break the graph if one of ``values``, of which the function of a loop gets slices, is no tensor."""
    for index, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            raise _refusal(operator, f"over what is no tensor: operand {index} is a {type(value).__name__}")
    if not values:
        raise _refusal(operator, "over no tensors")


def _slices(call: GraphsOfCall, tensors: Sequence[torch.Tensor]) -> Tensors:
    """Return the first element of each tensor along the first dimension, for metadata."""
    with call.tracer.unrecorded(), call.tracer.mode:
        return [x[0] for x in tensors]


def _stack_results(call: GraphsOfCall, tensors: Sequence[torch.Tensor], length: Any) -> Tensors:
    """Return the stacked results of all iterations, with a new first dimension, for metadata."""
    with call.tracer.unrecorded(), call.tracer.mode, torch.no_grad():
        return [torch.empty((length, *x.size()), dtype=x.dtype, device=x.device) for x in tensors]


def _arrange(tracer: TracerProtocol, values: Sequence[Any], carried: int = 0) -> Callable[[Tensors], list[Any]]:
    """Return a function that makes the arguments of a function of its inputs, which are the tensors of ``values``.

    The first ``carried`` values may be numbers, whose inputs are tensors of the numbers. All other values are constant.
    """

    def arrange(inputs: Tensors) -> list[Any]:
        remaining = iter(inputs)
        return [
            next(remaining)
            if isinstance(value, torch.Tensor)
            else number_of(tracer, next(remaining))
            if index < carried
            else value
            for index, value in enumerate(values)
        ]

    return arrange


def _tensors(values: Sequence[Any]) -> Tensors:
    """Return the tensors among ``values``."""
    return [value for value in values if isinstance(value, torch.Tensor)]


def _initial(tracer: TracerProtocol, operator: Any, values: Sequence[Any]) -> Tensors:
    """Return the first values that a loop carries as dense tensors. Break the graph for a value of another class."""
    initial = []
    for index, value in enumerate(values):
        carry = value if isinstance(value, torch.Tensor) else tensor_of(tracer, value)
        if carry is None:
            kind = type(value).__name__
            raise _refusal(operator, f"whose carry {index} is no tensor or number ({kind})")
        if not is_dense(carry):
            carry = tracer.record(torch.clone, (carry,), {"memory_format": torch.contiguous_format})
        initial.append(carry)
    return initial


def _demand_same_carry(
    call: GraphsOfCall, body: Subgraph, carried: Sequence[Any], initial: Sequence[torch.Tensor]
) -> None:
    """Break the graph if the first results of a loop's function do not match the values that the loop carries."""
    leaves = body.leaves
    if len(leaves) < len(carried):
        raise call.refuse(f"whose function returns {len(leaves)} values for {len(carried)} carried ones")
    outputs = iter(body.outputs)
    for index, (value, leaf, like) in enumerate(zip(carried, leaves, initial, strict=False)):
        difference = difference_of_kinds(value, leaf) or difference_of_tensors(like, next(outputs))
        if difference is not None:
            text = difference.text("before the loop", "after one iteration")
            raise call.refuse(f"whose carry {index} changes: {text}")


def _demand_steps(call: GraphsOfCall, leaves: Sequence[Any]) -> None:
    """Break the graph if a value that a loop collects in each iteration is neither a tensor nor ``None``."""
    for index, leaf in enumerate(leaves):
        if leaf is not None and not isinstance(leaf, torch.Tensor):
            raise call.refuse(f"whose function returns {kind_of(leaf)} as result {index}, which must be a tensor")


def _lifted(tracer: TracerProtocol, values: Any) -> Any:
    """Return ``values``, with fakes in place of wrapped tensors if layers of ``torch.func`` are active."""
    lifting = tracer.transforms.lifting
    return values if lifting is None else lifting.fakes_of(values)


def _layered(rule: Rule) -> Rule:
    """Return ``rule`` such that it traces the functions without the layers of ``torch.func`` around the call."""

    def apply(tracer: TracerProtocol, fn: Any, args: Args, kwargs: Kwargs) -> Any:
        """Apply the rule."""
        if not tracer.transforms.inside:
            return rule(tracer, fn, args, kwargs)
        with Lifting(tracer):
            return rule(tracer, fn, args, kwargs)

    return apply


def _record_below(
    tracer: TracerProtocol, derived: derivations.Call, operands: Sequence[Any]
) -> tuple[torch.Tensor, ...]:
    """Record a call of an operator below all layers of ``torch.func``, with the functions that the layers have made."""
    call, functions = GraphsOfCall(tracer, derived.operator), derived.functions
    nodes = [tracer.builder.argument(value, []) for value in _tensors(operands)]
    call.mark = tracer.builder.mark()
    trace = partial(call.trace_below, gradient=derived.gradients)
    if derived.operator is _OPERATORS.cond:
        pred, *rest = operands
        chosen = tracer.builder.argument(pred, [])
        call.mark = tracer.builder.mark()
        yes, no = (trace(function, rest) for function in functions)
        others = nodes[1:] if isinstance(pred, torch.Tensor) else nodes
        _, _, results = _add_cond(call, (chosen, pred), (yes, no), rest, others)
        return tuple(results)
    carries, *more = derived.counts
    initial = list(operands[:carries])
    if derived.operator is _OPERATORS.while_loop:
        test, body = (trace(function, operands) for function in functions)
        _demand_same_carry(call, body, initial, initial)
        return tuple(_add_while_loop(call, (test, body), initial, nodes)[1])
    xs = list(operands[carries : carries + more[0]])
    slices = [x.detach()[0] for x in xs]
    body = trace(functions[0], [*initial, *slices, *operands[carries + more[0] :]])
    _demand_same_carry(call, body, initial, initial)
    return tuple(_add_over_slices(call, body, initial, (xs, slices), nodes)[2])


def cond(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``cond(pred, true_fn, false_fn, operands)``: trace both branches as nested graphs."""
    pred, true_fn, false_fn, operands = bind_arguments(args, kwargs, "pred true_fn false_fn operands")
    flat, spec = subgraphs.flatten(tracer, operands)
    pred, flat = _lifted(tracer, (pred, flat))
    tensors = _tensors(flat)
    chosen, *nodes = (tracer.builder.argument(value, []) for value in (pred, *tensors))
    call = GraphsOfCall(tracer, _OPERATORS.cond)
    arrange = _arrange(tracer, flat)
    yes, no = (
        call.trace(
            fn,
            tensors,
            arrange=lambda inputs: subgraphs.unflatten(tracer, arrange(inputs), spec),
            free_form=True,
        )
        for fn in (true_fn, false_fn)
    )
    if yes.spec != no.spec:
        raise call.refuse(f"whose branches return other structures: {yes.spec} (true), {no.spec} (false)")
    joined, written, results = _add_cond(call, (chosen, pred), (yes, no), flat, nodes)
    call.write_back(written, results[len(results) - len(written) :])
    return subgraphs.unflatten(tracer, branches.values_of(tracer, joined, results), yes.spec)


def _add_cond(
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


def while_loop(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``while_loop(cond_fn, body_fn, carried_inputs, additional_inputs)``."""
    names = "cond_fn body_fn carried_inputs additional_inputs"
    cond_fn, body_fn, carried, additional = bind_arguments(args, kwargs, names)
    operator = _OPERATORS.while_loop
    carried, additional = _lifted(tracer, (carried, additional))
    initial = _initial(tracer, operator, carried)
    further = _tensors(additional)
    nodes = [tracer.builder.argument(value, []) for value in (*initial, *further)]
    call = GraphsOfCall(tracer, operator)
    arrange = _arrange(tracer, [*carried, *additional], len(carried))
    test = call.trace(cond_fn, [*initial, *further], arrange=arrange, free_form=True)
    if _constant_test(call, test) is False:
        tracer.builder.roll_back(call.mark)
        return tuple(carried)
    body = call.trace(body_fn, [*initial, *further], arrange=arrange, free_form=True)
    _demand_same_carry(call, body, carried, initial)
    if len(body.leaves) != len(carried):
        raise call.refuse(f"whose body returns {len(body.leaves)} values for {len(carried)} carried ones")
    loop, results = _add_while_loop(call, (test, body), initial, nodes)
    call.write_back(loop.written, results[len(initial) :])
    leaves = [
        result if isinstance(value, torch.Tensor) else number_of(tracer, result)
        for value, result in zip(carried, results, strict=False)
    ]
    return subgraphs.unflatten(tracer, leaves, body.spec)


def _add_while_loop(
    call: GraphsOfCall, functions: tuple[Subgraph, Subgraph], initial: Tensors, nodes: Sequence[fx.Node]
) -> tuple[_Loop, Tensors]:
    """Add the node of ``while_loop``. ``nodes``: those of ``initial``, then those of the other operands."""
    test, body = functions
    loop = _Loop(call, initial, nodes[len(initial) :])
    if loop.lines_written(test):
        raise call.refuse(f"whose condition writes to a tensor ({loop.lines_written(test)})")
    test_graph, body_graph = loop.body(test), loop.body(body)
    test_graph.redirect(loop.written, loop.tensors(test))
    _as_truth(test_graph)
    loop.complete(body_graph, body)
    modules = [("cond_fn", test_graph.module(is_single=True)), ("body_fn", body_graph.module())]
    gradient = any_gradient((*initial, *(n.meta["val"] for n in nodes)), call.free)
    graphs = call.install(modules)
    results = call.make_results(loop.likes, gradient=gradient)
    values = call.current_values(loop.written_nodes, loop.written)
    node_args = (*graphs, (*nodes[: len(initial)], *values), loop.invariant)
    return loop, call.add(node_args, results)


def _constant_test(call: GraphsOfCall, test: Subgraph) -> bool | None:
    """Return the truth of a loop's condition that depends on no data. Break the graph for an unsupported condition."""
    if len(test.leaves) != 1 or test.leaves[0] is None:
        raise call.refuse("whose condition is not one value")
    (value,) = test.leaves
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        raise call.refuse(f"whose condition is not one value but a tensor of size {tuple(value.size())}")
    if isinstance(value, (bool, int, float)):
        if value:
            raise call.refuse("whose condition is always true")
        return False
    return None


def _as_truth(test: Body) -> None:
    """Make the result of a loop's condition a boolean tensor without dimensions."""
    node, value = test.results[0]
    if value.dim():
        node, value = test.call(torch.reshape, (node, ()), (value, ()))
    if value.dtype is not torch.bool or node.op == "placeholder":
        node, value = test.call(torch.ne, (node, 0), (value, 0))
    test.results[0] = node, value


class _Loop:
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


def _over_slices(
    tracer: TracerProtocol, operator: Any, fn: Any, init: Sequence[Any], xs: Tensors, additional: Sequence[Any]
) -> Any:
    """Record a call of ``map_impl`` or ``scan``: of one function for each slice of the tensors ``xs``.

    ``init``: the values that the function carries. All iterations get ``additional``. The first results of the
    function are the carried values. The remaining results are stacked.
    """
    _demand_tensors(operator, xs)
    init, xs, additional = _lifted(tracer, (init, xs, additional))
    carried, further = _initial(tracer, operator, init), _tensors(additional)
    nodes = [tracer.builder.argument(value, []) for value in (*carried, *xs, *further)]
    call = GraphsOfCall(tracer, operator, [*carried, *xs, *further])
    slices = _slices(call, xs)
    arrange = _arrange(tracer, [*init, *slices, *additional], len(init))
    body = call.trace(fn, [*carried, *slices, *further], arrange=arrange, free_form=True)
    _demand_same_carry(call, body, init, carried)
    _demand_steps(call, body.leaves[len(init) :])
    loop, written, results = _add_over_slices(call, body, carried, (xs, slices), nodes)
    call.write_back(loop.written, results[len(carried) : len(loop.likes)])
    for position, index in enumerate(written, len(results) - len(written)):
        tracer.record(torch.Tensor.copy_, (xs[index], results[position]), {})
    remaining = iter([*results[: len(carried)], *results[len(loop.likes) :]])
    leaves = [None if leaf is None else next(remaining) for leaf in body.leaves]
    leaves[: len(init)] = [
        leaf if isinstance(value, torch.Tensor) else number_of(tracer, leaf)
        for value, leaf in zip(init, leaves, strict=False)
    ]
    return subgraphs.unflatten(tracer, leaves, body.spec)


def _add_over_slices(
    call: GraphsOfCall,
    body: Subgraph,
    carried: Tensors,
    sliced: tuple[Tensors, Tensors],
    nodes: Sequence[fx.Node],
) -> tuple[_Loop, dict[int, Written], Tensors]:
    """Add the node of ``map_impl`` or ``scan``. ``sliced``: the tensors over which it iterates, and their slices.

    ``nodes``: those of ``carried``, of the sliced tensors, and of the other operands. Return the loop, the slices
    that the function writes to, and the results of the node.
    """
    (xs, slices), own = sliced, len(carried)
    loop = _Loop(call, carried, nodes[own + len(xs) :], slices)
    graph = loop.body(body)
    written = loop.written_slices(body)
    loop.complete(graph, body, tuple(written.values()))
    if loop.written:  # the iterations of a map depend on each other
        call.operator = _OPERATORS.scan
    steps = _stack_results(call, [value for _, value in graph.results[len(loop.likes) :]], xs[0].size(0))
    gradient = any_gradient([n.meta["val"] for n in nodes], call.free)
    is_map = call.operator is _OPERATORS.map_impl
    (module,) = call.install([("map_body" if is_map else "scan_combine_fn", graph.module())])
    results = call.make_results([*loop.likes, *steps], gradient=gradient)
    values = call.current_values(loop.written_nodes, loop.written)
    groups = [[*nodes[:own], *values], list(nodes[own : own + len(xs)])]
    results = call.add((module, *groups[1 if is_map else 0 :], loop.invariant), results)
    return loop, written, results


def map_(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``map_impl(f, xs, pos_args)``."""
    fn, xs, additional = bind_arguments(args, kwargs, "f xs pos_args")
    return _over_slices(tracer, _OPERATORS.map_impl, fn, (), list(xs), additional)


def scan(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``scan(combine_fn, init, xs, additional_inputs)``."""
    fn, init, xs, additional = bind_arguments(args, kwargs, "combine_fn init xs additional_inputs")
    return _over_slices(tracer, _OPERATORS.scan, fn, init, list(xs), additional)


def associative_scan(tracer: TracerProtocol, _fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``associative_scan(combine_fn, xs, additional_inputs)``."""
    fn, xs, additional = bind_arguments(args, kwargs, "combine_fn xs additional_inputs")
    further = _tensors(additional)
    _demand_tensors(_OPERATORS.associative_scan, xs)
    nodes = [tracer.builder.argument(value, []) for value in (*xs, *further)]
    call = GraphsOfCall(tracer, _OPERATORS.associative_scan)
    slices = _slices(call, xs)
    arrange = _arrange(tracer, [*slices, *slices, *additional])
    body = call.trace(fn, [*slices, *slices, *further], arrange=arrange, free_form=True)
    _demand_same_carry(call, body, slices, slices)
    if len(body.leaves) != len(xs):
        raise call.refuse(f"whose function returns {len(body.leaves)} values for {len(xs)} operands")
    loop = _Loop(call, [], nodes[len(xs) :], [*slices, *slices])
    if loop.written:
        raise call.refuse(f"whose function writes to a tensor ({loop.lines_written(body)})")
    loop.written_slices(body)
    graph = loop.body(body)
    loop.complete(graph, body)
    steps = _stack_results(call, body.outputs, xs[0].size(0))
    gradient = any_gradient((*xs, *further), call.free)
    (module,) = call.install([("associative_scan_combine_fn", graph.module())])
    results = call.make_results(steps, gradient=gradient)
    call.add((module, nodes[: len(xs)], loop.invariant), results)
    return subgraphs.unflatten(tracer, list(results), body.spec)


def bind_arguments(args: Args, kwargs: Kwargs, names: str) -> tuple[Any, ...]:
    """Return the arguments in the order of ``names``, which blanks separate. A missing argument is an empty tuple."""
    by_name = dict(zip(names.split(), args, strict=False)) | kwargs
    return tuple(by_name.get(name, ()) for name in names.split())


RULES = {
    _OPERATORS.cond: _layered(cond),
    _OPERATORS.while_loop: _layered(while_loop),
    _OPERATORS.map_impl: _layered(map_),
    _OPERATORS.scan: _layered(scan),
    _OPERATORS.associative_scan: associative_scan,
}
