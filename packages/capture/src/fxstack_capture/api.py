"""The functions that users call: ``optimize``, ``capture``, ``explain``, ``reset``."""

from __future__ import annotations

import copy
import copyreg
import functools
import warnings
import weakref
from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any, Final

import torch

from fxstack_capture import native, torch_compat
from fxstack_capture.annotations import DISABLED, disable, graph_break, is_compiling, skip, skip_frame
from fxstack_capture.driver.backend import Backend, eager
from fxstack_capture.driver.calling import frame_of_call
from fxstack_capture.driver.compiler import FrameCompiler
from fxstack_capture.driver.contracts import CallContract
from fxstack_capture.driver.errors import (
    BackendError,
    GuardError,
    SkipFrame,
    Unsupported,
    WrongResultError,
    plain,
)
from fxstack_capture.driver.frame_policy.disabling import what_is_disabled
from fxstack_capture.driver.frame_policy.policy import is_foreign
from fxstack_capture.driver.fullgraph import first_frame_of, runs_later
from fxstack_capture.driver.reports.explanation import Explanation
from fxstack_capture.driver.reports.records import FrameRecord, Observer
from fxstack_capture.driver.whole_graph import Captured, capture_whole
from fxstack_capture.numpy_side.wrapping import ours
from fxstack_capture.optimized_module import OptimizedModule, wrap
from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.contract import ShapeContract, ShapeContractError
from fxstack_capture.shapes.profile import ShapeProfile

# Only for ``reset``: it forgets what living compilers have compiled.
_COMPILERS: Final[weakref.WeakSet[FrameCompiler]] = weakref.WeakSet()


def optimize(
    backend: Backend = eager,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: CaptureOptions | None = None,
    observer: Observer | None = None,
    profile: ShapeProfile | None = None,
    dynamic_shapes: object = None,
    named_backend: Callable[[Any], Backend] | None = None,
    again: Callable[[Any], Any] | None = None,
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: the function, method or module with its torch operations captured and compiled.

    Args:
        backend: ``(GraphModule, example_inputs) -> callable``; ``example_inputs`` are fake tensors and
            ``SymInt``s. The default runs the captured graph as it is.
        fullgraph: Raise ``Unsupported`` where the graph would break, or the call would run in plain Python for any reason.
        dynamic: True: sizes and numbers are symbolic from the start; False: never; None: once they change.
        options: More options; ``fullgraph`` and ``dynamic`` are taken from the arguments above unless given here.
        observer: Told of every trace and graph break.
        profile: What earlier processes saw (``profile_of``): sizes and numbers that changed then are
            symbolic at once.
        dynamic_shapes: A contract about the sizes of the arguments, as ``torch.export`` takes it. A call that is not
            in it, and a program that does not work for all of it, raise ``ShapeContractError``.
        named_backend: The backend for what ``set_stance(force_backend=...)`` is given; the default knows ``"eager"``.
        again: What compiles a copy of a module, and what is pickled with it to compile it where it is loaded. The
            default calls this function with the same arguments.
    """
    contract = None if dynamic_shapes is None else ShapeContract(dynamic_shapes)
    chosen = options or CaptureOptions(fullgraph=fullgraph, dynamic=dynamic)
    same = {
        "backend": backend,
        "options": chosen,
        "observer": observer,
        "profile": profile,
        "dynamic_shapes": dynamic_shapes,
        "named_backend": named_backend,
    }
    compile_copy = again or functools.partial(_optimize_again, same)

    def decorate(fn: Callable[..., Any]) -> Any:
        if not callable(fn):
            raise TypeError(f"optimize: expected a function or module, got {fn!r}")
        if not native.AVAILABLE:
            warnings.warn(f"{native.WHY_MISSING}; running in plain Python", stacklevel=2)
            return fn
        compiler = _compiler(backend, chosen, observer)
        if named_backend is not None:
            compiler.alternates.named_backend = named_backend
        if profile is not None:
            compiler.states.profile = profile
        if contract is not None:
            compiler.contract = CallContract(contract, getattr(fn, "_orig_mod", fn))
        return _optimized(fn, compiler, compile_copy)

    return decorate


def _optimize_again(arguments: dict[str, Any], fn: Callable[..., Any]) -> Any:
    return optimize(**arguments)(fn)


def _compiler(
    backend: Backend,
    options: CaptureOptions,
    observer: Observer | None,
    records: list[FrameRecord] | None = None,
) -> FrameCompiler:
    compiler = FrameCompiler(backend, options, native.Owner(), observer, records)
    _COMPILERS.add(compiler)
    return compiler


def _optimized(fn: Callable[..., Any], compiler: FrameCompiler, again: Callable[[Any], Any]) -> Any:
    def run(function: Callable[..., Any]) -> Any:
        made = native.Optimized(function, compiler.callback, compiler.owner)
        made.__wrapped__ = function
        if compiler.options.leave_unprofitable and not compiler.options.fullgraph:
            compiler.trials.add(made, fn)
        return made

    if isinstance(fn, native.Optimized):
        fn = fn.__wrapped__
    if isinstance(fn, OptimizedModule):
        fn = fn._orig_mod
    if isinstance(fn, torch.nn.Module):
        compiler.root = fn
        compiler.first = torch_compat.wrapped_module_call.__code__
        return wrap(fn, run, again)
    entered = _with_frame(ours(what_is_disabled(fn)), always=compiler.options.fullgraph)
    compiler.first = first_frame_of(entered)
    made = run(entered)
    functools.update_wrapper(made, fn)
    if isinstance(fn, MethodType):  # a copy of the object that holds it is to call the copy's
        made.__deepcopy__ = lambda memo: again(copy.deepcopy(fn, memo))
    return made


def _name_of(compiled: object) -> str:
    """What ``pickle`` keeps of a compiled function: where to find it, as of any function. Copies of it are itself."""
    name: str = getattr(compiled, "__qualname__", type(compiled).__qualname__)
    return name


copyreg.pickle(native.Optimized, _name_of)


def _with_frame(fn: Callable[..., Any], *, always: bool) -> Callable[..., Any]:
    """A function of Python for one of C (``torch.sin``, a partial of it), or of a library whose frames run plainly.

    Only frames are compiled. ``torch.vmap(f)``, say, is such a function of a library, which is traced where it is called.
    ``always``: whatever is called has to be compiled.
    """
    inner = fn.func if isinstance(fn, functools.partial) else fn
    code = first_frame_of(fn)
    if always and code is not None and runs_later(code):
        raise plain(f"{code.co_qualname}, a generator or coroutine, which runs after the call,")
    if not (isinstance(inner, _WITHOUT_FRAME) or (always and code is None)) and not _runs_plainly(
        getattr(inner, "__func__", inner)
    ):
        return fn

    def call(*args: object, **kwargs: object) -> Any:
        return fn(*args, **kwargs)

    # Frames of this package are its own and never compiled, so this one must not look like one of them.
    code = call.__code__.replace(co_filename="<string>")
    return FunctionType(code, {"__name__": "<string>"}, closure=call.__closure__)


def _runs_plainly(fn: object) -> bool:
    return (
        isinstance(fn, FunctionType)
        and is_foreign(fn.__code__)
        and not (fn.__dict__.get("_torchdynamo_disable") or fn.__dict__.get(DISABLED))
    )


_WITHOUT_FRAME = (
    BuiltinFunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
    torch_compat.OpOverload,
    torch_compat.OpOverloadPacket,
)


def profile_of(compiled: object) -> ShapeProfile:
    """What a function or module returned by ``optimize`` has seen of sizes and numbers.

    Save it, and pass it to ``optimize`` in the next process; ``merged`` joins the profiles of several ranks.

    Raises:
        TypeError: ``compiled`` was not made by ``optimize``.
    """
    entrance = compiled._fxstack_call if isinstance(compiled, OptimizedModule) else compiled
    compiler = getattr(getattr(entrance, "callback", None), "__self__", None)
    if not isinstance(compiler, FrameCompiler):
        raise TypeError(f"profile_of: expected what optimize returned, got {compiled!r}")
    return compiler.states.seen()


def capture(fn: Callable[..., Any], *args: object, **kwargs: object) -> Captured:
    """One whole graph of ``fn(*args, **kwargs)``, with guards and signature.

    Calls of the result check the guards, and raise ``GuardError`` where one of them does not hold.

    Raises:
        Unsupported: the call cannot be one graph; the text and ``record`` say where and why.
    """
    return capture_whole(fn, args, kwargs, CaptureOptions(fullgraph=True))


def export(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: object = None,
) -> Captured:
    """One whole graph of ``fn(*args, **kwargs)`` for all sizes that ``dynamic_shapes`` allows; torch.export's convention.

    Without ``dynamic_shapes`` all sizes are those of the arguments. Calls of the result are checked.

    Raises:
        Unsupported: the call cannot be one graph.
        ShapeContractError: the arguments are not in the contract, or the program works for fewer sizes than it allows.
    """
    made = getattr(dynamic_shapes, "dynamic_shapes", None)  # a torch.export.ShapesCollection
    spec = dynamic_shapes if made is None else made(fn, args, kwargs)
    options = CaptureOptions(fullgraph=True)
    return capture_whole(fn, args, kwargs or {}, options, ShapeContract(spec or {}))


def explain(fn: Callable[..., Any], *, dynamic: bool | None = None) -> Callable[..., Explanation]:
    """``explain(fn)(*args)`` runs the call and says what was captured: graphs, guards, graph breaks.

    Without the C extension the call is traced up to its first graph break and not run.
    """

    def explained(*args: object, **kwargs: object) -> Explanation:
        records: list[FrameRecord] = []
        options = CaptureOptions(dynamic=dynamic)
        if not native.AVAILABLE:
            frame = frame_of_call(fn, args, kwargs)
            FrameCompiler(eager, options, None, None, records).look(frame, frame.function.__code__)
            return Explanation(tuple(records))
        compiler = _compiler(eager, options, None, records)
        _optimized(fn, compiler, lambda other: other)(*args, **kwargs)
        return Explanation(tuple(records))

    return explained


def reset() -> None:
    """Forget everything that was compiled: the next calls compile anew."""
    for compiler in list(_COMPILERS):
        compiler.reset()


__all__ = [
    "BackendError",
    "Captured",
    "Explanation",
    "GuardError",
    "ShapeContractError",
    "ShapeProfile",
    "SkipFrame",
    "Unsupported",
    "WrongResultError",
    "capture",
    "disable",
    "explain",
    "export",
    "graph_break",
    "is_compiling",
    "optimize",
    "profile_of",
    "reset",
    "skip",
    "skip_frame",
]
