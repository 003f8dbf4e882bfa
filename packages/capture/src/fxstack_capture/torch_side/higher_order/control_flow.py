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

from fxstack_capture.torch_side.autograd.accumulation import is_dense
from fxstack_capture.torch_side.higher_order import subgraphs
from fxstack_capture.torch_side.higher_order.nested import branches
from fxstack_capture.torch_side.higher_order.nested.calls import (
    GraphsOfCall,
    Tensors,
    any_gradient,
    bind_arguments,
    refusal,
)
from fxstack_capture.torch_side.higher_order.nested.lifting import Lifting
from fxstack_capture.torch_side.higher_order.nested.nodes import (
    Loop,
    add_cond,
    add_over_slices,
    add_while_loop,
    demand_same_carry,
    record_below,
    stack_results,
    tensors_of,
)
from fxstack_capture.torch_side.higher_order.nested.results import kind_of, number_of, tensor_of
from fxstack_capture.torch_side.higher_order.subgraphs import Subgraph
from fxstack_capture.torch_side.recording.graph import SYMBOLIC
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

Rule = Callable[[TracerProtocol, Any, Args, Kwargs], Any]

# Limits: eager torch compiles such calls with its own compiler. torch's compiler rejects some functions that
# fxstack compiles (for example, an operand that is also a closure). torch's compiler may not see functions
# that run in plain Python inside of compiled code.

_OPERATORS = torch.ops.higher_order


def _demand_tensors(operator: Any, values: Sequence[Any]) -> None:
    """Break the graph if one of ``values``, of which the function of a loop gets slices, is no tensor."""
    for index, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            raise refusal(operator, f"over what is no tensor: operand {index} is a {type(value).__name__}")
    if not values:
        raise refusal(operator, "over no tensors")


def _slices(call: GraphsOfCall, tensors: Sequence[torch.Tensor]) -> Tensors:
    """Return the first element of each tensor along the first dimension, for metadata."""
    with call.tracer.unrecorded(), call.tracer.mode:
        return [x[0] for x in tensors]


def _arrange(
    tracer: TracerProtocol, values: Sequence[Any], carried: int = 0
) -> Callable[[Tensors], list[Any]]:
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


def _initial(tracer: TracerProtocol, operator: Any, values: Sequence[Any]) -> Tensors:
    """Return the first values that a loop carries as dense tensors. Break the graph for a value of another class."""
    initial = []
    for index, value in enumerate(values):
        carry = value if isinstance(value, torch.Tensor) else tensor_of(tracer, value)
        if carry is None:
            kind = type(value).__name__
            raise refusal(operator, f"whose carry {index} is no tensor or number ({kind})")
        if not is_dense(carry):
            lifting = tracer.transforms.lifting
            copy = None if lifting is None else lifting.dense_fake(carry)
            if copy is None:
                copy = tracer.record(torch.clone, (carry,), {"memory_format": torch.contiguous_format})
            carry = copy
        initial.append(carry)
    return initial


def _demand_steps(call: GraphsOfCall, leaves: Sequence[Any], place: str) -> None:
    """Break the graph if a value that a loop collects in each iteration is neither a tensor nor ``None``."""
    for index, leaf in enumerate(leaves):
        if leaf is not None and not isinstance(leaf, torch.Tensor):
            raise call.refuse(
                f"whose function returns {kind_of(leaf)} as result {index}{place}, which must be a tensor"
            )


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
        with Lifting(tracer, record_below):
            return rule(tracer, fn, args, kwargs)

    return apply


def cond(tracer: TracerProtocol, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``cond(pred, true_fn, false_fn, operands)``: trace both branches as nested graphs."""
    pred, true_fn, false_fn, operands = bind_arguments(args, kwargs, "pred true_fn false_fn operands")
    if isinstance(pred, SYMBOLIC):
        pred = tensor_of(tracer, pred if isinstance(pred, torch.SymBool) else pred != 0)
    flat, spec = subgraphs.flatten(tracer, operands)
    pred, flat = _lifted(tracer, (pred, flat))
    tensors = tensors_of(flat)
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
        text = f"{yes.spec} in the true branch{yes.place} and {no.spec} in the false branch{no.place}"
        raise call.refuse(f"whose branches return other structures: {text}")
    joined, written, results = add_cond(call, (chosen, pred), (yes, no), flat, nodes)
    call.write_back(written, results[len(results) - len(written) :])
    return subgraphs.unflatten(tracer, branches.values_of(tracer, joined, results), yes.spec)


def while_loop(tracer: TracerProtocol, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``while_loop(cond_fn, body_fn, carried_inputs, additional_inputs)``."""
    names = "cond_fn body_fn carried_inputs additional_inputs"
    cond_fn, body_fn, carried, additional = bind_arguments(args, kwargs, names)
    operator = _OPERATORS.while_loop
    carried, additional = _lifted(tracer, (carried, additional))
    initial = _initial(tracer, operator, carried)
    further = tensors_of(additional)
    nodes = [tracer.builder.argument(value, []) for value in (*initial, *further)]
    call = GraphsOfCall(tracer, operator)
    arrange = _arrange(tracer, [*carried, *additional], len(carried))
    test = call.trace(cond_fn, [*initial, *further], arrange=arrange, free_form=True)
    if _constant_test(call, test) is False:
        tracer.builder.roll_back(call.mark)
        return tuple(carried)
    body = call.trace(body_fn, [*initial, *further], arrange=arrange, free_form=True)
    demand_same_carry(call, body, carried, initial)
    if len(body.leaves) != len(carried):
        raise call.refuse(
            f"whose body returns {len(body.leaves)} values for {len(carried)} carried ones{body.place}"
        )
    loop, results = add_while_loop(call, (test, body), initial, nodes)
    call.write_back(loop.written, results[len(initial) :])
    leaves = [
        result if isinstance(value, torch.Tensor) else number_of(tracer, result)
        for value, result in zip(carried, results, strict=False)
    ]
    return subgraphs.unflatten(tracer, leaves, body.spec)


def _constant_test(call: GraphsOfCall, test: Subgraph) -> bool | None:
    """Return the truth of a loop's condition that depends on no data. Break the graph for an unsupported condition."""
    if len(test.leaves) != 1 or test.leaves[0] is None:
        raise call.refuse(f"whose condition is not one value{test.place}")
    (value,) = test.leaves
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        size = tuple(value.size())
        raise call.refuse(f"whose condition is not one value but a tensor of size {size}{test.place}")
    if isinstance(value, (bool, int, float)):
        if value:
            raise call.refuse(f"whose condition is always true{test.place}")
        return False
    return None


def _over_slices(
    tracer: TracerProtocol, operator: Any, fn: Any, operands: tuple[Sequence[Any], Tensors, Sequence[Any]]
) -> Any:
    """Record a call of ``map_impl`` or ``scan``: of one function for each slice of the tensors ``xs``.

    ``operands``: the values that the function carries, the tensors ``xs``, and what all iterations get. The first
    results of the function are the carried values. The remaining results are stacked.
    """
    _demand_tensors(operator, operands[1])
    init, xs, additional = _lifted(tracer, operands)
    carried, further = _initial(tracer, operator, init), tensors_of(additional)
    nodes = [tracer.builder.argument(value, []) for value in (*carried, *xs, *further)]
    call = GraphsOfCall(tracer, operator, [*carried, *xs, *further])
    slices = _slices(call, xs)
    arrange = _arrange(tracer, [*init, *slices, *additional], len(init))
    body = call.trace(fn, [*carried, *slices, *further], arrange=arrange, free_form=True)
    _demand_pair(call, fn, body, len(init))
    demand_same_carry(call, body, init, carried)
    _demand_steps(call, body.leaves[len(init) :], body.place)
    loop, written, results = add_over_slices(call, body, carried, (xs, slices), nodes)
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


def _demand_pair(call: GraphsOfCall, fn: Any, body: Subgraph, carries: int) -> None:
    """Break the graph if the function of ``torch``'s ``scan`` returns another number of carried values than it gets."""
    if not (isinstance(fn, partial) and "spec_init" in fn.keywords):
        return  # a call of the operator itself has a flat list of results
    pair = body.spec.children() if body.spec.type is tuple else []
    if len(pair) != 2:
        raise call.refuse(
            f"whose function does not return a pair, of the carried values and of a step{body.place}"
        )
    if pair[0].num_leaves != carries:
        raise call.refuse(
            f"whose function returns {pair[0].num_leaves} carried values for {carries}{body.place}"
        )


def map_(tracer: TracerProtocol, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``map_impl(f, xs, pos_args)``."""
    fn, xs, additional = bind_arguments(args, kwargs, "f xs pos_args")
    return _over_slices(tracer, _OPERATORS.map_impl, fn, ((), list(xs), additional))


def scan(tracer: TracerProtocol, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``scan(combine_fn, init, xs, additional_inputs)``."""
    fn, init, xs, additional = bind_arguments(args, kwargs, "combine_fn init xs additional_inputs")
    return _over_slices(tracer, _OPERATORS.scan, fn, (init, list(xs), additional))


def associative_scan(tracer: TracerProtocol, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``associative_scan(combine_fn, xs, additional_inputs)``."""
    fn, xs, additional = bind_arguments(args, kwargs, "combine_fn xs additional_inputs")
    further = tensors_of(additional)
    _demand_tensors(_OPERATORS.associative_scan, xs)
    nodes = [tracer.builder.argument(value, []) for value in (*xs, *further)]
    call = GraphsOfCall(tracer, _OPERATORS.associative_scan)
    slices = _slices(call, xs)
    arrange = _arrange(tracer, [*slices, *slices, *additional])
    body = call.trace(fn, [*slices, *slices, *further], arrange=arrange, free_form=True)
    demand_same_carry(call, body, slices, slices)
    if len(body.leaves) != len(xs):
        raise call.refuse(
            f"whose function returns {len(body.leaves)} values for {len(xs)} operands{body.place}"
        )
    loop = Loop(call, [], nodes[len(xs) :], [*slices, *slices])
    if loop.written:
        raise call.refuse(f"whose function writes to a tensor ({loop.lines_written(body)})")
    loop.written_slices(body)
    graph = loop.body(body)
    loop.complete(graph, body)
    steps = stack_results(call, body.outputs, xs[0].size(0))
    gradient = any_gradient((*xs, *further), call.free)
    (module,) = call.install([("associative_scan_combine_fn", graph.module())])
    results = call.make_results(steps, gradient=gradient)
    call.add((module, nodes[: len(xs)], loop.invariant), results)
    return subgraphs.unflatten(tracer, list(results), body.spec)


RULES = {
    _OPERATORS.cond: _layered(cond),
    _OPERATORS.while_loop: _layered(while_loop),
    _OPERATORS.map_impl: _layered(map_),
    _OPERATORS.scan: _layered(scan),
    _OPERATORS.associative_scan: associative_scan,
}
