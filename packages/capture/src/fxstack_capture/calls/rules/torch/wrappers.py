"""Wrappers that torch puts around its own functions for its own compiler.

The wrappers are closures, created anew for each function, so their rules are keyed by code object
(``CODE_RULES``). The rules call the wrapped function, and code in it that cannot be traced breaks the graph
there. Functions that users disable (``torch.compiler.disable``) stay disabled.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Self

import torch
from torch.autograd.profiler import record_function

from fxstack_capture import torch_compat
from fxstack_capture.callers import plainly
from fxstack_capture.calls.rules.builtins import running_frames, typing_forms
from fxstack_capture.calls.rules.torch import plain_optimizers, process_groups
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.numpy_side.wrapping import TORCHS, traced_to_arrays, traced_to_tensors
from fxstack_capture.torch_side.rules import profiler_ranges
from fxstack_capture.trace.state import Trace
from fxstack_capture.trace.strictness import error_on_graph_break

CodeRule = Callable[[Trace, FunctionType, tuple[Any, ...], dict[str, Any]], Any]

RULES: RuleTable = RuleTable()


def _noop(*_args: object) -> None:
    """A function to wrap, in order to get the code of the wrapper."""


def _wrapped(trace: Trace, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return trace.calls.call(trace.objects.load_attr(fn, "__wrapped__"), args, kwargs)


def _step(trace: Trace, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    inner = trace.objects.load_attr(fn, "__wrapped__")
    return trace.interp.call_function(_with_grad_mode, (inner, *args), kwargs)


def _with_grad_mode(step: Any, *args: Any, **kwargs: Any) -> Any:
    """Do what the wrapper of ``Optimizer.step`` does, without the graph breaks of the wrapper."""
    previous = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(args[0].defaults["differentiable"])
        return step(*args, **kwargs)
    finally:
        torch.set_grad_enabled(previous)


CODE_RULES: dict[int, tuple[CodeType, CodeRule]] = {
    id(wrapper.__code__): (wrapper.__code__, rule)
    for wrapper, rule in (
        (torch_compat.disable_dynamo(_noop), _wrapped),
        (torch_compat.use_grad_for_differentiable(_noop), _step),
    )
    if isinstance(wrapper, FunctionType)
} | {
    id(plain_optimizers.STEP): (plain_optimizers.STEP, plain_optimizers.end_graph),
    id(typing_forms.CACHED): (typing_forms.CACHED, typing_forms.subscribed),
}

# Wrappers that torch's own compiler puts around methods of every module at its first use, and the names of
# the wrapped methods in their closures.
_TAGGING = {
    "install_generation_tagging_init.<locals>.patched_init": "init",
    "install_generation_tagging_init.<locals>.patched_setstate": "setstate",
}


def _untagged(trace: Trace, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the original method without the mark, which only torch's own compiler reads."""
    place = fn.__code__.co_freevars.index(_TAGGING[fn.__qualname__])
    assert fn.__closure__ is not None
    return trace.calls.call(fn.__closure__[place].cell_contents, args, kwargs)


_MANAGED = "wrap_dunder_call_ctx_manager.<locals>.inner"
"""What torch's compiler makes of a function that one of its context managers decorates."""


def _managed(trace: Trace, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The decorated function. Of the managers only ``error_on_graph_break`` means something in compiled code."""
    held = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    manager, function = held["self"].cell_contents, held["func"].cell_contents
    is_error = getattr(manager, "error_on_graph_break", None)
    if is_error is not None:
        return trace.interp.call_function(_with_strictness, (bool(is_error), function, *args), kwargs)
    return trace.calls.call(function, args, kwargs)


def _with_strictness(is_error: bool, function: Any, *args: Any, **kwargs: Any) -> Any:
    with error_on_graph_break(is_error):
        return function(*args, **kwargs)


def _of_arrays(trace: Trace, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The rule of the result of ``torch.compiler.wrap_numpy``."""
    args, kwargs = traced_to_arrays(trace, ((args, kwargs),), {})
    return traced_to_tensors(trace, (_wrapped(trace, fn, args, kwargs),), {})


def code_rule(fn: FunctionType) -> CodeRule | None:
    """The rule of ``fn``, if ``fn`` is a wrapper."""
    found = CODE_RULES.get(id(fn.__code__))
    if found is not None:
        return found[1]
    if fn.__code__.co_qualname == TORCHS:
        return _of_arrays
    if process_groups.is_logged(fn):
        return process_groups.collective
    if fn.__qualname__ in _TAGGING:
        return _untagged
    if fn.__code__.co_qualname == _MANAGED:
        return _managed
    if running_frames.is_debugger(fn):
        return _debugger
    return _original if fn.__dict__ and _is_only_torchs_compilers(fn) else None


def _debugger(trace: Trace, _fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return running_frames.debugger(trace, args, kwargs)


def _is_only_torchs_compilers(fn: FunctionType) -> bool:
    """Whether a wrapper has a meaning for torch's own compiler alone.

    Such a wrapper compiles a function that the program gave to ``torch.compile``; this compiler compiles the
    function instead. From its first use on, torch's compiler also disables itself in ``_init_group`` and in
    the fused updates of optimizers.
    """
    original = fn.__dict__.get("_torchdynamo_orig_callable")
    if not isinstance(original, FunctionType):
        return False
    if fn.__dict__.get("_torchdynamo_disable"):
        kept_away = original.__name__ == "_init_group" or original.__name__.startswith("_fused_")
        return kept_away and original.__module__.startswith("torch.optim")
    return fn.__module__ == original.__module__ and fn.__code__.co_filename == _COMPILED_BY


_COMPILED_BY = str(Path(torch.__file__).parent / "_dynamo" / "eval_frame.py")


def _original(trace: Trace, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return trace.calls.call(fn.__dict__["_torchdynamo_orig_callable"], args, kwargs)


@RULES.rule(torch_compat.optimizer_value)
def _get_value(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A step count as the number that eager computes with, because a tensor would have a lower precision."""
    (value,) = args
    return trace.torch.counted(value) if isinstance(value, torch.Tensor) else value


@RULES.rule(torch_compat.stack_if_compiling)
def _stack(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


class IdleRegion(record_function):
    """A range that plain Python may end: graphs have the range, and nothing happens outside of graphs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        return None


@RULES.rule(record_function)
def _make_record(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> IdleRegion:
    bound = plainly(_RECORD_SIGNATURE.bind, (None, *args), kwargs)
    made = IdleRegion.__new__(IdleRegion)
    made.__dict__.update(name=bound.args[1], args=bound.arguments.get("args"))
    return made


_RECORD_SIGNATURE = inspect.signature(record_function.__init__)


@RULES.positional(record_function.__enter__, 1)
def _enter_outside(trace: Trace, region: Any) -> Any:
    # Plain Python may end the range, which it has not begun.
    trace.objects.store_attr(region, "run_callbacks_on_exit", False)
    return _enter_range(trace, region)


@RULES.positional(record_function.__exit__, 4)
def _exit_outside(trace: Trace, region: Any, *error: object) -> None:
    if trace.objects.load_attr(region, "run_callbacks_on_exit"):  # plain Python has begun it
        trace.interp.call_function(record_function.__exit__, (region, *error), {})
        return
    trace.objects.store_attr(region, "run_callbacks_on_exit", True)
    _exit_range(trace, region, *error)


@RULES.positional(IdleRegion.__enter__, 1)
def _enter_range(trace: Trace, region: Any) -> Any:
    if trace.options.profiler_ranges:
        name, args = (trace.objects.load_attr(region, attribute) for attribute in ("name", "args"))
        trace.torch.call(profiler_ranges.begin, (name, args), {})
    else:
        _note_idle()
    return region


@cache
def _note_idle() -> None:
    logging.getLogger(__name__).info("record_function has no effect without the option profiler_ranges")


@RULES.positional(IdleRegion.__exit__, 4)
def _exit_range(trace: Trace, _region: object, *_error: object) -> None:
    if trace.options.profiler_ranges:
        trace.torch.call(profiler_ranges.end, (), {})


@RULES.forward(torch._C._profiler._RecordFunctionFast)
def _fast_range(
    _trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return record_function, args[:1], {key: value for key, value in kwargs.items() if key == "name"}
