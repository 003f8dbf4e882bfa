"""Optimizers: steps under the right gradient mode, and steps that run in plain Python.

All steps of LBFGS depend on data: it compares norms and losses after each small operation, and appends to lists. A
trace would give dozens of graphs of a few operators each, and new graphs for every length of the history. So its
steps run in plain Python, and their closures are compiled.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

import torch
from torch.optim import lbfgs

from fxstack_capture import native, torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.rules import RULES
from fxstack_capture.guards.records import Guard, IdentityIs
from fxstack_capture.sources import InstanceAttr
from fxstack_capture.trace.state import Args, Kwargs, Trace

# Limits: torch.compile marks LBFGS and SparseAdam, and their closures, as not to be compiled; the marks stay
# for the rest of the process. SGD(fused=True) of half precision runs in plain Python because torch's kernel
# reads momentum that was not written yet.


def _step(trace: Trace, fn: FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """Call the step that torch has wrapped, under the gradient mode of the optimizer."""
    if args:
        _demand_checked(trace, args[0])
    inner = trace.objects.load_attr(fn, "__wrapped__")
    return trace.interp.call_function(_with_grad_mode, (inner, *args), kwargs)


def _demand_checked(trace: Trace, optimizer: object) -> None:
    """Run the step in plain Python if it checks the parameters of a fused optimizer, which only the first step does.

    The optimizer keeps in an attribute that the check is due, so the graph of the first step fits no other step.
    """
    original = trace.objects.original_of(optimizer)
    if not trace.may_defer or original is optimizer or not isinstance(original, torch.optim.Optimizer):
        return
    if vars(original).get(_CHECK_DUE) is not True:
        return
    if any(group.get("fused") for group in original.param_groups):
        reason = graph_break("plain-python", f"the first step of a fused {type(original).__qualname__}")
        source = trace.objects.registry.by_proxy[id(optimizer)].source
        reason.until = Guard(InstanceAttr(source, _CHECK_DUE), IdentityIs(True, id(True)))
        raise reason


_CHECK_DUE = "_need_device_dtype_check_for_fused"


def _with_grad_mode(step: Any, *args: Any, **kwargs: Any) -> Any:
    """Do what the wrapper of ``Optimizer.step`` does, without the graph breaks of the wrapper."""
    previous = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(args[0].defaults["differentiable"])
        return step(*args, **kwargs)
    finally:
        torch.set_grad_enabled(previous)


if isinstance(_wrapper := torch_compat.use_grad_for_differentiable(lambda *_args: None), FunctionType):
    RULES.add(_step, _wrapper.__code__)


@RULES.rule(torch_compat.optimizer_value)
def _get_value(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return a step count as the number that eager computes with. A tensor would have a lower precision."""
    (value,) = args
    return trace.torch.counted(value) if isinstance(value, torch.Tensor) else value


@RULES.rule(torch_compat.stack_if_compiling)
def _stack(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the tensors unstacked, as in plain Python."""
    return args[0]


@RULES.rule(inspect.unwrap(torch.optim.LBFGS.step).__code__)
def _end_graph(_trace: Trace, fn: FunctionType, _args: Args, _kwargs: Kwargs) -> NoReturn:
    """Break the graph: the step runs in plain Python."""
    raise graph_break("data-dependent-branch", f"{fn.__qualname__}, which is decided by data throughout,")


def _codes(module: ModuleType) -> Iterator[CodeType]:
    """Yield the code of all functions and methods of a module without decorators, and of inner functions."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    members = [member for cls in own if isinstance(cls, type) for member in vars(cls).values()]
    for value in (*own, *members):
        if isinstance(value, FunctionType):
            yield from _with_inner(inspect.unwrap(value).__code__)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yield ``code`` and the code of all functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


if native.AVAILABLE:
    for _code in _codes(lbfgs):
        if _code.co_name != "__init__":
            native.skip(_code)
