"""``while_loop_stack_output``: a ``while_loop`` that returns the carried tensors of all iterations, stacked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fxstack_capture.torch_side.higher_order import subgraphs
from fxstack_capture.torch_side.higher_order.nested.calls import GraphsOfCall, bind_arguments
from fxstack_capture.torch_side.higher_order.nested.nodes import stack_iterations
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

_NAMES = "cond_fn body_fn carried_inputs additional_inputs"
_UNCHANGED = ("dtype", "device", "shape")
"""Attributes that a carried tensor keeps. torch compares its strides by the same rule as ``torch.stack``: not at all."""


def stacked_loop(tracer: TracerProtocol, operator: Any, args: Args, kwargs: Kwargs) -> Any:
    """Record a node of the operator. Its results have a first dimension of unknown size, the number of iterations."""
    cond_fn, body_fn, carried, additional = bind_arguments(args, kwargs, _NAMES)
    call = GraphsOfCall(tracer, operator)
    inputs = [*carried, *additional]
    for index, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            raise call.refuse(f"of what is no tensor: operand {index} is a {type(value).__name__}")
    condition = call.trace(cond_fn, inputs)
    if len(condition.outputs) != 1 or condition.outputs[0].numel() != 1:
        raise call.refuse(f"whose condition is not one value{condition.place}")
    body = call.trace(body_fn, inputs)
    _demand_same_kinds(call, carried, body.outputs)
    free = tuple(dict.fromkeys((*condition.free, *body.free)))
    modules = [subgraphs.cut_out(tracer, x, free) for x in (replace(condition, is_single=True), body)]
    builder = tracer.builder
    builder.roll_back(call.mark)
    graphs = [
        builder.module(name, module) for name, module in zip(("cond_fn", "body_fn"), modules, strict=True)
    ]
    results = call.make_results(stack_iterations(call, body.outputs), gradient=_requires_grad(inputs))
    further = (*call.operands(additional), *free)
    return call.write((*graphs, tuple(call.operands(carried)), further), results, body.spec)


def _demand_same_kinds(call: GraphsOfCall, carried: Any, outputs: Any) -> None:
    """Break the graph if the body returns other kinds of tensors than it gets."""
    if len(carried) != len(outputs):
        raise call.refuse(f"whose body gets {len(carried)} carried tensors and returns {len(outputs)}")
    for index, (before, after) in enumerate(zip(carried, outputs, strict=True)):
        for name in _UNCHANGED:
            old, new = getattr(before, name), getattr(after, name)
            if old != new:
                raise call.refuse(
                    f"whose body gets carried tensor {index} with {name} {old} and returns {name} {new}"
                )


def _requires_grad(tensors: list[torch.Tensor]) -> bool:
    """Return whether a tensor requires grad. In grad mode, the operator then gives its results a history."""
    return any(x.requires_grad for x in tensors)
