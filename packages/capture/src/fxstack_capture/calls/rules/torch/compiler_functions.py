"""Functions that control or ask a compiler: the annotations of ``fxstack_capture``, ``torch.compiler``, ``torch._dynamo``.

Functions of torch's compiler have rules by qualified name, because torch's compiler need not be loaded. Compiled code
may call compilers, too: ``torch.compile(fn)`` and ``torch.jit.script(fn)`` compute the same result as ``fn``, so ``fn``
is inlined. A compiler wraps a module in a new object, and the program can observe this object. Compiling a module
therefore breaks the graph.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, NoReturn

import torch
from torch import fx

from fxstack_capture import native, torch_compat
from fxstack_capture.annotations import graph_break as break_by_program
from fxstack_capture.annotations import is_compiling, skip_frame
from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.marks.nonstrict import as_operations
from fxstack_capture.calls.rules import RULES
from fxstack_capture.sources import BuiltinAttr, pinned
from fxstack_capture.trace import strictness
from fxstack_capture.trace.rule_registry import run_plainly
from fxstack_capture.trace.state import Args, Kwargs, Trace


@RULES.rule(break_by_program, "torch._dynamo.decorators:graph_break")
def _graph_break(_trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> NoReturn:
    """Break the graph, as the program requests."""
    raise graph_break("user-break", _by_program(*args, **kwargs))


@RULES.rule(skip_frame, "torch._dynamo.decorators:skip_frame")
def _skip_frame(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> NoReturn:
    """Break the graph, and run the calling function in plain Python."""
    by = _by_program(*args, **kwargs)
    raise graph_break("user-skip", by, whole=trace.interp.current_frame())


def _by_program(msg: object = "") -> str:
    """Return the phrase for the message of the break. ``msg`` is the reason that the program gave."""
    return f"by the program: {msg}" if msg else "by the program"


@RULES.rule(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _is_compiling(trace: Trace, _fn: object, _args: Args, _kwargs: Kwargs) -> bool:
    """Return True, except to modules of torch that would compute something else."""
    caller = trace.interp.current_frame().globals
    return caller.get("__name__") not in _COMPUTE_OTHERWISE


_COMPUTE_OTHERWISE = frozenset({"torch.optim.sgd", "torch.nn.modules.transformer"})
"""Modules that compute other results if ``is_compiling()``, to suit torch's compiler."""


@RULES.rule(is_compiling, "torch._dynamo.external_utils:is_compiling")
def _yes(_trace: Trace, _fn: object, _args: Args, _kwargs: Kwargs) -> bool:
    """Return True."""
    return True


@RULES.rule(torch.compiler.is_exporting)
def _is_exporting(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> bool:
    """Return whether ``export`` captures the graph."""
    return trace.exporting


@RULES.rule(
    torch.jit.is_scripting,
    torch.jit.is_tracing,
    torch_compat.is_scripting,
    torch.onnx.is_in_onnx_export,
    torch_compat.is_tracing,
)
def _no(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> bool:
    """Return False."""
    return False


@RULES.rule(typing.cast)
def _cast(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the value unchanged."""
    return args[1]


# It raises for a name that no overload has; ``loads`` has looked up all others.
RULES.add(run_plainly, torch_compat.OpOverloadPacket.__getattr__)


# --- settings -------------------------------------------------------------------------------------------


@RULES.unpacked("torch._dynamo.decorators:mark_static")
def _mark_static(trace: Trace, t: object, index: Any = None) -> None:
    """Specialise the sizes of a tensor to their present values."""
    if not isinstance(t, torch.Tensor):
        raise graph_break("disabled", "mark_static")
    if index is None:
        index = range(t.dim())
    for dim in (index,) if isinstance(index, int) else index:
        if -t.dim() <= dim < t.dim():  # torch's function accepts a dimension that the tensor lacks
            trace.torch.specialize(t.size(dim))


@RULES.unpacked("torch.compiler:cudagraph_mark_step_begin", "torch.compiler:cudagraph_mark_warmup_incomplete")
def _nothing(_trace: Trace) -> None:
    """Ignore ``cudagraph_mark_step_begin`` and ``cudagraph_mark_warmup_incomplete``.

    Graphs of this compiler are not replayed while the program holds a result, so steps need no mark.
    ``cudagraph_mark_warmup_incomplete`` (torch 2.14) controls torch's own graphs and has no effect outside of
    them.
    """


@RULES.unpacked("torch._dynamo.decorators:override_optimization_hint")
def _no_hint(_trace: Trace, _x: object, _val: int) -> None:
    """Ignore ``override_optimization_hint``: no decision of this compiler depends on such a hint."""


@RULES.unpacked("torch._dynamo.decorators:override_cudagraphs")
def _no_context(trace: Trace, fwd: bool | None = None, bwd: bool | None = None) -> Any:
    """Ignore ``override_cudagraphs``: the mode of a compiled callable decides about CUDA graphs."""
    del fwd, bwd
    return trace.calls.call(contextlib.nullcontext, (), {})


@RULES.unpacked("torch._dynamo.eval_frame:OptimizedModule.__call__")
def _optimized_module(trace: Trace, module: object, *args: object, **kwargs: object) -> Any:
    """Call the result of ``torch.compile(module)``: run its own hooks and the module that it holds."""
    return trace.calls.call(torch.nn.Module.__call__, (module, *args), kwargs)


@RULES.unpacked("torch._dynamo.decorators:error_on_graph_break")
def _error_on_graph_break(trace: Trace, error_on_graph_break: bool) -> Any:
    """Call the function of the same name of this package."""
    return trace.calls.call(strictness.error_on_graph_break, (error_on_graph_break,), {})


@RULES.unpacked("fxstack_capture.marking:nonstrict_trace", "torch._dynamo.decorators:nonstrict_trace")
def _nonstrict_trace(trace: Trace, traceable_fn: object = None, fn: object = None) -> Any:
    """Return a function that is recorded as operators. The rule of the result exists in this trace alone."""
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


# --- compilers and their results ------------------------------------------------------------------------


@RULES.rule(fx.Interpreter.__init__)
def _make_interpreter(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Make an interpreter of torch.fx that keeps all values: nodes of its graph are C objects."""
    bound = _OF_INTERPRETER.bind(*args, **kwargs).arguments
    kept = {"garbage_collect_values": False, "graph": bound.get("graph")}
    return trace.interp.call_function(fn, (bound["self"], bound["module"]), kept)


_OF_INTERPRETER = inspect.signature(fx.Interpreter.__init__)


@RULES.rule(fx.Interpreter.run)
def _interpret(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Run the code that torch.fx has generated from the graph of an interpreter."""
    self, *inputs = args
    load = trace.objects.load_attr
    module = load(self, "module")
    original = trace.objects.original_of(module)
    if (
        type(self) is fx.Interpreter
        and isinstance(original, fx.GraphModule)
        and not kwargs.get("initial_env")
    ):
        is_own_graph = trace.objects.original_of(load(self, "graph")) is original.graph
        if is_own_graph and original.graph.python_code("self").src == original.code:
            return trace.calls.call(load(module, "forward"), tuple(inputs), {})
    return trace.interp.call_function(fn, args, kwargs)


@RULES.rule(torch.compile, "fxstack.api:compile")
def compiled_inside(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the function unchanged, because the trace inlines it; without a function, return a decorator."""
    model = args[0] if args else kwargs.get("model")
    return _decorator if model is None else _inlined(model)


def _decorator(model: object) -> Any:
    """Stand for the result of ``torch.compile()`` in compiled code. ``_decorated`` is the rule of its calls."""
    raise AssertionError("this has a rule")


@RULES.rule(_decorator)
def _decorated(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the decorated function unchanged, because the trace inlines it."""
    return _inlined(args[0] if args else kwargs.get("model"))


def _inlined(model: object) -> Any:
    """Return ``model``, the argument of ``compile``, if it is a function. Break the graph for a module."""
    if type(model) not in (FunctionType, MethodType):
        raise graph_break("disabled", f"compile of a {type(model).__qualname__}, in compiled code,")
    return model


@RULES.instances(torch.jit.ScriptFunction)
def _scripted(trace: Trace, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Call the function that ``torch.jit.script`` or ``torch.jit.trace`` compiled, if the function is known.

    TorchScript converts an integer argument to a float if the parameter is annotated as float, and so does this rule.
    """
    inner = getattr(fn, "_torchdynamo_inline", None)
    if type(inner) is not FunctionType:
        raise graph_break("unsupported-call", f"{fn.name}, a function of TorchScript")
    kinds = {argument.name: str(argument.type) for argument in fn.schema.arguments}
    positional = [_converted(value, kind) for value, kind in zip(args, kinds.values(), strict=False)]
    keywords = {name: _converted(value, kinds.get(name, "")) for name, value in kwargs.items()}
    return trace.calls.call(inner, (*positional, *args[len(positional) :]), keywords)


def _converted(value: object, kind: str) -> Any:
    """Return an argument of a TorchScript function as the type ``kind`` of its parameter, for example "float"."""
    return value * 1.0 if kind == "float" and isinstance(value, (int, torch.SymInt)) else value


@RULES.instances(native.Optimized)
def _compiled_separately(trace: Trace, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Inline the original function of a function that was compiled separately into this graph."""
    inner = fn.__wrapped__
    source = pinned(fn, getattr(inner, "__qualname__", "compiled"))
    return trace.calls.call(trace.objects.enter(inner, BuiltinAttr(source, "__wrapped__")), args, kwargs)
