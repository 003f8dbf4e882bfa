"""The calls in graphs of torch's compiled autograd.

torch's compiled autograd records a backward pass as a graph and gives it to a compiler. The graph calls hooks of
the program, backwards of custom functions, and the accumulation of gradients through functions of torch, for
which this file has rules. Derivative formulas of operators become one node each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.rules import RULES
from fxstack_capture.sources import pinned
from fxstack_capture.torch_compat import ImperativeEngine
from fxstack_capture.torch_side.autograd import accumulation
from fxstack_capture.trace.state import Args, Kwargs, Trace
from fxstack_interchange.operators.hooking import TRACEABLE_BACKWARD

_FUNCTIONS: Final = "torch._dynamo.external_utils"

CALLBACKS: Final[list[Callable[[], object]]] = []
"""Callbacks that hooks have queued for the end of the backward pass. torch runs one such pass at a time."""


@RULES.unpacked("torch._dynamo.compiled_autograd:Op.__call__")
def _operator(trace: Trace, operator: Any, *args: object, **kwargs: object) -> Any:
    """Record the derivative formula of an operator as one node."""
    return trace.torch.call(trace.objects.original_of(operator), args, kwargs)


@RULES.unpacked(f"{_FUNCTIONS}:call_hook")
def _hook(trace: Trace, hook: object, *args: object, **kwargs: object) -> Any:
    """Call a hook of the program, which may keep the tensors that it gets or returns."""
    trace.torch.call(accumulation.show, (args,), {})
    result = _interpret(trace, "call_hook", hook, *args, **kwargs)
    trace.torch.call(accumulation.show, (result,), {})
    return result


@RULES.unpacked(f"{_FUNCTIONS}:call_backward")
def _backward(trace: Trace, node: object, saved_tensors: object, *args: object) -> Any:
    """Trace the backward of a custom function; for a compiled graph, inline its backward graph."""
    traceable = getattr(trace.objects.load_attr(node, "_forward_cls"), TRACEABLE_BACKWARD, None)
    if traceable is None:
        trace.torch.call(accumulation.show, (args,), {})
        results = _interpret(trace, "call_backward", node, saved_tensors, *args)
        trace.torch.call(accumulation.show, (results,), {})
        return results
    if torch.is_grad_enabled():
        raise graph_break("unsupported-call", "the second derivative of a compiled graph")
    backward = traceable(trace.objects.original_of(node), tuple(arg is None for arg in args))
    if backward is None:
        raise graph_break("unsupported-call", "the backward of a compiled graph with linked results")
    function = trace.objects.enter(backward, pinned(backward, "backward"))
    return trace.calls.call(function, (node, saved_tensors, *args), {})


def _interpret(trace: Trace, name: str, *args: object, **kwargs: object) -> Any:
    """Interpret a function of torch that the graph has called."""
    function = vars(sys.modules[_FUNCTIONS])[name]
    return trace.interp.call_function(function, args, kwargs)


@RULES.unpacked(f"{_FUNCTIONS}:call_accumulate_grad")
def _accumulate(trace: Trace, variable: object, *args: Any, **_kwargs: object) -> Any:
    """Accumulate a gradient, as the last node of a history does.

    The arguments are the leaf, its present gradient (since torch 2.13), the gradient, and a flag.
    """
    gradient = args[-2]
    trace.torch.call(accumulation.accumulate, (variable, gradient), {})
    return trace.objects.load_attr(variable, "grad")


@RULES.rule(ImperativeEngine.queue_callback)
def _queue_callback(trace: Trace, _fn: object, args: Args, _kwargs: Kwargs) -> None:
    """Queue a callback for the end of the backward pass."""
    trace.torch.call(accumulation.demand_hook, (), {})
    _engine, callback = args
    trace.calls.call(trace.objects.load_attr(_queue(trace), "append"), (callback,), {})


@RULES.unpacked(f"{_FUNCTIONS}:FakeCompiledAutogradEngine._exec_final_callbacks_stub")
def _run_callbacks(trace: Trace) -> None:
    """Run the callbacks that hooks have queued, at the end of the backward pass."""
    trace.interp.call_function(_run_all, (_queue(trace),), {})


def _run_all(queued: list[Callable[[], object]]) -> None:
    """Run the queued callbacks and those that they queue. The interpreter runs this function."""
    while queued:
        queued.pop(0)()


def _queue(trace: Trace) -> Any:
    """Return ``CALLBACKS`` as a list of the trace."""
    return trace.objects.enter(CALLBACKS, pinned(CALLBACKS, "callbacks"))
