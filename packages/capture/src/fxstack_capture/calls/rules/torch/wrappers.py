"""Wrappers that torch puts around its own functions for its own compiler.

The wrappers are closures, created anew for each function, so their rules are keyed by code object or by qualified
name. The rules call the wrapped function, and code in it that cannot be traced breaks the graph there. Functions
that users disable (``torch.compiler.disable``) stay disabled.
"""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.calls.rules import RULES
from fxstack_capture.numpy_side.wrapping import TORCHS, traced_to_arrays, traced_to_tensors
from fxstack_capture.trace.state import Args, Kwargs, Trace
from fxstack_capture.trace.strictness import error_on_graph_break


def _wrapped(trace: Trace, fn: FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """Call the function that torch has wrapped."""
    return trace.calls.call(trace.objects.load_attr(fn, "__wrapped__"), args, kwargs)


if isinstance(_wrapper := torch_compat.disable_dynamo(lambda *_args: None), FunctionType):
    RULES.add(_wrapped, _wrapper.__code__)

# Wrappers that torch's own compiler puts around methods of every module at its first use, and the names of
# the wrapped methods in their closures.
_TAGGING = {
    "install_generation_tagging_init.<locals>.patched_init": "init",
    "install_generation_tagging_init.<locals>.patched_setstate": "setstate",
}


@RULES.rule(*_TAGGING)
def _untagged(trace: Trace, fn: FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """Call the original method without the mark, which only torch's own compiler reads."""
    cell = fn.__code__.co_freevars.index(_TAGGING[fn.__qualname__])
    assert fn.__closure__ is not None
    return trace.calls.call(fn.__closure__[cell].cell_contents, args, kwargs)


@RULES.rule("wrap_dunder_call_ctx_manager.<locals>.inner")
def _managed(trace: Trace, fn: FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """Call a function that a context manager of torch's compiler decorates.

    Of these context managers only ``error_on_graph_break`` has an effect in compiled code.
    """
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    manager, function = cells["self"].cell_contents, cells["func"].cell_contents
    is_error = getattr(manager, "error_on_graph_break", None)
    if is_error is not None:
        return trace.interp.call_function(_with_strictness, (bool(is_error), function, *args), kwargs)
    return trace.calls.call(function, args, kwargs)


def _with_strictness(is_error: bool, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call ``function`` under ``error_on_graph_break``. The interpreter runs this function."""
    with error_on_graph_break(is_error):
        return function(*args, **kwargs)


@RULES.rule(TORCHS)
def _of_arrays(trace: Trace, fn: FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """Call a function that ``torch.compiler.wrap_numpy`` returned: convert tensors to arrays, and the results back."""
    args, kwargs = traced_to_arrays(trace, fn, ((args, kwargs),), {})
    return traced_to_tensors(trace, fn, (_wrapped(trace, fn, args, kwargs),), {})


def is_only_torchs_compilers(fn: FunctionType) -> bool:
    """Whether ``fn`` is a wrapper that matters to torch's compiler only, so that the wrapped function is called.

    Such a wrapper compiles a function that the program gave to ``torch.compile``; this compiler compiles the function
    instead. From its first use on, torch's compiler also disables itself in ``_init_group`` and in the fused updates of
    optimizers.
    """
    original = fn.__dict__.get("_torchdynamo_orig_callable")
    if not isinstance(original, FunctionType):
        return False
    if fn.__dict__.get("_torchdynamo_disable"):
        kept_away = original.__name__ == "_init_group" or original.__name__.startswith("_fused_")
        return kept_away and (original.__module__ or "").startswith("torch.optim")
    return fn.__module__ == original.__module__ and fn.__code__.co_filename == _COMPILED_BY


_COMPILED_BY = str(Path(torch.__file__).parent / "_dynamo" / "eval_frame.py")


def call_original(trace: Trace, fn: FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """Call the function that torch's compiler has wrapped."""
    return trace.calls.call(fn.__dict__["_torchdynamo_orig_callable"], args, kwargs)
