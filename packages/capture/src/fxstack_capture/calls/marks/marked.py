"""Marked functions (by ``torch.compiler`` or by ``disable``), and functions that control a compiler.

A call of most such functions breaks the graph. Functions of torch's compiler with a meaning in compiled code
are found by name, because torch's compiler need not be loaded.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import FunctionType, MappingProxyType
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.marks import compiled_autograd
from fxstack_capture.calls.marks.nonstrict import as_operations
from fxstack_capture.calls.marks.registered import as_one_node, called_once, ending_the_graph
from fxstack_capture.calls.rules.torch.annotations import break_here, skip_here
from fxstack_capture.calls.rules.torch.compiling import compiled_inside
from fxstack_capture.trace import strictness
from fxstack_capture.trace.state import Trace

_COMPILER_MODULES = (
    "torch._dynamo",
    "torch.compiler",
    "torch._inductor",
    "torch._compile",
    "fxstack_capture.annotations",
    "fxstack_capture.api",
    "fxstack.api",
    "fxstack_capture.marking",
    "fxstack_capture.stance",
)
_NOT_OF_COMPILERS = frozenset(
    {
        "torch._dynamo._trace_wrapped_higher_order_op",
        "torch._dynamo.external_utils",
        "torch._dynamo.compiled_autograd.copy_slices_prologue",
        "torch._dynamo.compiled_autograd.copy_slices_epilogue",
        "torch._dynamo.decorators.patch_dynamo_config",
        "torch._dynamo.decorators._patch_dynamo_config_check",
        "torch._dynamo.decorators.DynamoConfigPatchProxy.__init__",
        "torch._dynamo.decorators.DynamoConfigPatchProxy.__enter__",
        "torch._dynamo.decorators.DynamoConfigPatchProxy.__exit__",
        "torch._dynamo.utils.is_safe_constant",
        "torch._dynamo.utils.istype",
    }
)
"""Modules and functions that are kept beside torch's compiler, but are traced like those of a program.

The first is the mode under which ``mask[index]`` can be mapped over indices. Graphs of compiled autograd, and hooks
in them, call the next three. The others patch settings, which the next graph heeds.
"""


def is_marked(fn: FunctionType) -> bool:
    """Whether ``call_marked`` handles calls of ``fn``."""
    if fn.__dict__ and any(fn.__dict__.get(name) for name in _MARKS):
        return True
    module = fn.__module__
    if type(module) is str and module.startswith(_COMPILER_MODULES):
        name = fn.__qualname__
        is_traced = module in _NOT_OF_COMPILERS or f"{module}.{name}" in _NOT_OF_COMPILERS
        return not is_traced or (module, name) in _MEANINGS
    return torch_compat.is_allowed_by_torch(fn)


def call_marked(trace: Trace, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a marked function in compiled code. A call of most of them breaks the graph."""
    meaning = _MEANINGS.get((fn.__module__, fn.__qualname__))
    if meaning is not None:
        return meaning(trace, *args, **kwargs)
    for name, rule_for in _MARKS.items():
        if fn.__dict__.get(name):
            return rule_for(fn)(trace, args, kwargs)
    if torch_compat.is_allowed_by_torch(fn):
        if torch_compat.is_told(fn, "_leaf_function_ids"):
            raise graph_break("disabled", f"{fn.__qualname__}, a leaf function,")
        as_node = as_operations if _is_nonstrict_by_torch(fn) else as_one_node
        return as_node(fn)(trace, args, kwargs)
    raise graph_break("disabled", f"{fn.__qualname__}, a function of a compiler,")


def _is_nonstrict_by_torch(fn: FunctionType) -> bool:
    return torch_compat.is_told(fn, "_nonstrict_trace_callable_ids")


def _disabled(fn: FunctionType) -> Callable[..., Any]:
    said = fn.__dict__.get("_torchdynamo_disable_msg") or fn.__dict__.get("_fxstack_disable")
    detail = f"{fn.__qualname__} ({said})" if isinstance(said, str) else fn.__qualname__

    def rule(_trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        raise graph_break("disabled", detail)

    return rule


def _forbidden(fn: FunctionType) -> Callable[..., Any]:
    # Torch forbids some functions of its compiler, whose calls run between graphs here.
    is_of_compiler = (fn.__module__ or "").startswith(_COMPILER_MODULES)
    return ending_the_graph(fn, "disabled" if is_of_compiler else "forbidden")


_MARKS: MappingProxyType[str, Callable[[Any], Callable[..., Any]]] = MappingProxyType(
    {
        "_torchdynamo_disable": _disabled,
        "_fxstack_disable": _disabled,
        "_dynamo_marked_constant": called_once,
        "_dynamo_forbidden": _forbidden,
    }
)
"""What the attributes mean that ``disable`` and functions like it leave on functions."""


def _mark_static(trace: Trace, t: object, index: Any = None) -> None:
    """``torch._dynamo.mark_static``: specialise the sizes to their present values."""
    if not isinstance(t, torch.Tensor):
        raise graph_break("disabled", "mark_static")
    if index is None:
        index = range(t.dim())
    for dim in (index,) if isinstance(index, int) else index:
        trace.torch.specialize(t.size(dim))


def _is_compiling(_trace: Trace) -> bool:
    """The older name of ``torch.compiler.is_compiling``. The result is True."""
    return True


def _compile(trace: Trace, *args: object, **kwargs: object) -> Any:
    return compiled_inside(trace, args, kwargs)


def _graph_break(trace: Trace, *args: object, **kwargs: object) -> Any:
    break_here(trace, args, kwargs)


def _skip_frame(trace: Trace, *args: object, **kwargs: object) -> Any:
    skip_here(trace, args, kwargs)


def _nothing(_trace: Trace) -> None:
    """Ignore ``cudagraph_mark_step_begin`` and ``cudagraph_mark_warmup_incomplete``.

    Graphs of this compiler are not replayed while the program holds a result, so steps need no mark.
    ``cudagraph_mark_warmup_incomplete`` (torch 2.14) controls torch's own graphs and has no effect outside of
    them.
    """


def _no_hint(_trace: Trace, _x: object, _val: int) -> None:
    """Ignore ``override_optimization_hint``: rules and not sizes decide here."""


def _no_context(trace: Trace, fwd: bool | None = None, bwd: bool | None = None) -> Any:
    """Ignore ``override_cudagraphs``: the mode of a compiled callable decides about CUDA graphs."""
    del fwd, bwd
    return trace.calls.call(contextlib.nullcontext, (), {})


def _optimized_module(trace: Trace, module: object, *args: object, **kwargs: object) -> Any:
    """Call the result of ``torch.compile(module)``: run its own hooks and the module that it holds."""
    return trace.calls.call(torch.nn.Module.__call__, (module, *args), kwargs)


def _error_on_graph_break(trace: Trace, error_on_graph_break: bool) -> Any:
    """``torch._dynamo.error_on_graph_break``: call the function of the same name of this package."""
    return trace.calls.call(strictness.error_on_graph_break, (error_on_graph_break,), {})


def _nonstrict_trace(trace: Trace, traceable_fn: object = None, fn: object = None) -> Any:
    """``nonstrict_trace`` of a function from outside. The rule of the result exists in this trace alone."""
    function = traceable_fn if fn is None else fn
    objects = trace.objects
    if type(function) is not FunctionType or objects.is_new(function):
        raise graph_break("unsupported-call", "nonstrict_trace of a function that was made inside")
    objects.recreated.pin((function,))

    @functools.wraps(function)
    def traced(*_args: object, **_kwargs: object) -> Any:
        raise AssertionError("this has a rule")

    calls = trace.calls
    calls.rules[id(traced)] = as_operations(function)
    calls.leaves[id(traced)] = traced, True  # the entry keeps ``traced`` alive, so its id stays valid
    return traced


_MEANINGS: MappingProxyType[tuple[str, str], Callable[..., Any]] = MappingProxyType(
    {
        ("torch._dynamo.decorators", "mark_static"): _mark_static,
        ("torch._dynamo.external_utils", "is_compiling"): _is_compiling,
        ("torch._dynamo.decorators", "error_on_graph_break"): _error_on_graph_break,
        ("torch._dynamo.decorators", "graph_break"): _graph_break,
        ("torch._dynamo.decorators", "override_cudagraphs"): _no_context,
        ("torch._dynamo.decorators", "override_optimization_hint"): _no_hint,
        ("torch._dynamo.decorators", "skip_frame"): _skip_frame,
        ("torch._dynamo.eval_frame", "OptimizedModule.__call__"): _optimized_module,
        **compiled_autograd.MEANINGS,
        ("torch.compiler", "cudagraph_mark_step_begin"): _nothing,
        ("torch.compiler", "cudagraph_mark_warmup_incomplete"): _nothing,
        ("fxstack.api", "compile"): _compile,
        ("fxstack_capture.marking", "nonstrict_trace"): _nonstrict_trace,
        ("torch._dynamo.decorators", "nonstrict_trace"): _nonstrict_trace,
    }
)
