"""The functions that users call: ``optimize``, ``capture``, ``export``, ``explain``, ``reset``."""

from __future__ import annotations

import copy
import copyreg
import functools
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
from fxstack_capture.driver.frame_of_call import frame_of_call
from fxstack_capture.driver.frame_policy.compiled_autograd import around, is_backward_pass, with_callbacks
from fxstack_capture.driver.frame_policy.disabling import what_is_disabled
from fxstack_capture.driver.frame_policy.fullgraph import first_frame_of, runs_later
from fxstack_capture.driver.frame_policy.policy import is_foreign, is_module_call
from fxstack_capture.driver.optimized_module import OptimizedModule, wrap
from fxstack_capture.driver.reports.explanation import Explanation
from fxstack_capture.driver.reports.records import FrameRecord, Observer
from fxstack_capture.driver.reports.uncompiled import FirstCall
from fxstack_capture.driver.whole_graph import Captured, capture_whole
from fxstack_capture.numpy_side.wrapping import ours
from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.contract import ShapeContract, ShapeContractError
from fxstack_capture.shapes.profile import ShapeProfile
from fxstack_interchange.user_warnings import warn_user

# ``reset`` discards the entries of all living compilers. Nothing else uses this set.
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
    """Return a decorator that captures and compiles the torch operations of a function, method or module.

    Args:
        backend: ``(GraphModule, example_inputs) -> callable``. ``example_inputs`` are the tensors of the call,
            and a ``SymInt`` for each symbolic size. A backend with the attribute ``wants_fake_inputs`` gets fake
            tensors. The default runs the captured graph unchanged.
        fullgraph: Raise ``Unsupported`` at a graph break, or if the call would run in plain Python for any
            reason.
        dynamic: Whether sizes and numbers are symbolic. True: from the start. False: never. None: after they change.
        options: More options. If given, ``fullgraph`` and ``dynamic`` are taken from it, and not from the
            arguments above.
        observer: An object that is notified of every trace and graph break.
        profile: Observations of earlier processes (``profile_of``). Numbers that changed there are symbolic at once.
        dynamic_shapes: A contract about the sizes of the arguments, in the form of ``torch.export``.
            ``ShapeContractError`` is raised by a call that violates the contract, and by a program that does
            not work for all sizes of the contract.
        named_backend: Maps ``force_backend`` of ``set_stance`` to a backend. The default knows ``"eager"``.
        again: The function that compiles a copy of a module. It is pickled with the module, and compiles the
            module in the process that loads it. The default calls ``optimize`` with the same arguments.
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
            warn_user(f"{native.WHY_MISSING}; running in plain Python", UserWarning)
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
    """Compile ``fn`` with the arguments of an earlier ``optimize`` call. Called for copies and unpickled
    modules.
    """
    return optimize(**arguments)(fn)


def _compiler(
    backend: Backend,
    options: CaptureOptions,
    observer: Observer | None,
    records: list[FrameRecord] | None = None,
) -> FrameCompiler:
    """Return a new compiler with its own entries. Register it for ``reset``. For ``records``, see
    ``FrameCompiler``.
    """
    compiler = FrameCompiler(backend, options, native.Owner(), observer, records)
    _COMPILERS.add(compiler)
    return compiler


def _optimized(fn: Callable[..., Any], compiler: FrameCompiler, recompile: Callable[[Any], Any]) -> Any:
    """Return ``fn`` compiled by ``compiler``. ``optimize``, ``explain`` and ``sharing_entries`` call this.

    ``recompile`` compiles a copy of ``fn`` in the same way.
    """

    def run(function: Callable[..., Any]) -> Any:
        entered = around(function, recompile, compiler.options)
        if is_backward_pass(fn):
            entered = with_callbacks(entered)
        made = native.Optimized(entered, compiler.callback, compiler.owner)
        made.__wrapped__ = function
        leaves = compiler.options.leave_unprofitable and not compiler.options.fullgraph
        if leaves and not is_backward_pass(fn):  # the callbacks of a backward pass run only in compiled code
            compiler.trials.add(made, fn)
        made.trial = FirstCall(compiler, fn, made.trial)
        return made

    if isinstance(fn, native.Optimized):
        fn = fn.__wrapped__
    if isinstance(fn, OptimizedModule):
        fn = fn._orig_mod
    if isinstance(fn, torch.nn.Module):
        compiler.root = fn
        compiler.first = torch_compat.wrapped_module_call.__code__
        return wrap(fn, run, recompile)
    entered = _with_frame(ours(what_is_disabled(fn)), always=compiler.options.fullgraph)
    compiler.first = first_frame_of(entered)
    made = run(entered)
    functools.update_wrapper(made, fn, _OF_FUNCTIONS)
    # A copy of the object that holds the method must call the method on the copy.
    if isinstance(fn, MethodType):
        made.__deepcopy__ = lambda memo: recompile(copy.deepcopy(fn, memo))
    return made


_OF_FUNCTIONS = (
    *functools.WRAPPER_ASSIGNMENTS,
    *("__defaults__", "__kwdefaults__", "__code__", "__globals__", "__closure__"),
)
"""The attributes that a compiled function copies from its original. Programs that inspect functions read
them.
"""


def _name_of(compiled: object) -> str:
    """Return the name by which ``pickle`` and ``copy`` find a compiled function, as they find any function.

    Therefore a copy of a compiled function is the function itself.
    """
    name: str = getattr(compiled, "__qualname__", type(compiled).__qualname__)
    return name


copyreg.pickle(native.Optimized, _name_of)


def _with_frame(fn: Callable[..., Any], *, always: bool) -> Callable[..., Any]:
    """Return ``fn``. If the hook would compile no frame of ``fn``, return a Python function that calls
    ``fn``.

    The hook compiles no frame of a C function (``torch.sin``, or a partial of it), and no frame of a library
    function that runs in plain Python, for example ``torch.vmap(f)``. The returned function has a frame, and
    its trace includes ``fn``. ``always``: every call must be compiled (``fullgraph``).
    """
    inner = fn.func if isinstance(fn, functools.partial) else fn
    code = first_frame_of(fn)
    if always and code is not None and runs_later(code):
        raise plain(f"{code.co_qualname}, a generator or coroutine, which runs after the call,")
    if not (isinstance(inner, _WITHOUT_FRAME) or (always and code is None)) and not _runs_plainly(
        _function_of(inner)
    ):
        return fn

    def call(*args: object, **kwargs: object) -> Any:
        return fn(*args, **kwargs)

    # The hook does not compile frames of this package. The frame of this function has another file name, so
    # it is compiled.
    code = call.__code__.replace(co_filename="<string>")
    return FunctionType(code, {"__name__": "<string>"}, closure=call.__closure__)


def _function_of(fn: Any) -> Any:
    """Return the function whose frame the hook sees first in a call of ``fn``. For a module, this is its
    ``forward``.

    The result may be any callable if ``fn`` is no Python code.
    """
    owner = getattr(fn, "__self__", None)
    code = getattr(getattr(fn, "__func__", None), "__code__", None)
    if isinstance(owner, torch.nn.Module) and code is not None and is_module_call(code):
        fn = owner.forward
    if not isinstance(fn, (FunctionType, MethodType, type)):
        fn = getattr(type(fn), "__call__", fn)  # noqa: B004 - the method itself
    return getattr(fn, "__func__", fn)


def _runs_plainly(fn: object) -> bool:
    """Whether ``fn`` is a library function whose frame runs in plain Python. Functions that somebody disabled
    do not count.
    """
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
"""The classes of callables that start no Python frame."""


def profile_of(compiled: object) -> ShapeProfile:
    """Return the sizes and numbers that a result of ``optimize`` (a function or module) has seen.

    Save the profile, and pass it to ``optimize`` in the next process. ``merged`` joins the profiles of
    several ranks.

    Raises:
        TypeError: ``compiled`` was not made by ``optimize``.
    """
    entrance = compiled._fxstack_call if isinstance(compiled, OptimizedModule) else compiled
    return _compiler_of(entrance, "profile_of").states.seen()


def sharing_entries(compiled: object) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator for functions that have the same code object as the function inside of ``compiled``.

    If a program wraps a function anew in each call, the decorator lets it compile the function only once. The
    callables share their entries with ``compiled``. The decorator does not keep ``compiled`` alive.

    Raises:
        TypeError: ``compiled`` is no function or method that was compiled by ``optimize``.
    """
    compiler = _compiler_of(compiled, "sharing_entries")

    def decorate(fn: Callable[..., Any]) -> Any:
        return _optimized(fn, compiler, decorate)

    return decorate


def _compiler_of(compiled: object, caller: str) -> FrameCompiler:
    """Return the compiler of a result of ``optimize``. ``caller`` is the name of the public function in the
    TypeError.
    """
    compiler = getattr(getattr(compiled, "callback", None), "__self__", None)
    if not isinstance(compiler, FrameCompiler):
        raise TypeError(f"{caller}: expected a callable that optimize returned, got {compiled!r}")
    return compiler


def capture(fn: Callable[..., Any], *args: object, **kwargs: object) -> Captured:
    """Return one whole graph of ``fn(*args, **kwargs)``, with guards and signature.

    A call of the result checks the guards, and raises ``GuardError`` if a guard fails.

    Raises:
        Unsupported: the call cannot be one graph. The message and ``record`` say where and why.
    """
    return capture_whole(fn, args, kwargs, CaptureOptions(fullgraph=True))


def export(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: object = None,
) -> Captured:
    """Return one whole graph of ``fn(*args, **kwargs)`` for all sizes that ``dynamic_shapes`` allows.

    ``dynamic_shapes`` has the form of torch.export. Without it, all sizes are fixed to those of the
    arguments. A call of the result checks its arguments.

    Raises:
        Unsupported: the call cannot be one graph.
        ShapeContractError: the arguments violate the contract, or the program works for fewer sizes than the
            contract allows.
    """
    # ``dynamic_shapes`` may be a torch.export.ShapesCollection.
    made = getattr(dynamic_shapes, "dynamic_shapes", None)
    spec = dynamic_shapes if made is None else made(fn, args, kwargs)
    options = CaptureOptions(fullgraph=True)
    return capture_whole(fn, args, kwargs or {}, options, ShapeContract(spec or {}))


def explain(fn: Callable[..., Any], *, dynamic: bool | None = None) -> Callable[..., Explanation]:
    """Return a function that runs a call and returns a report: ``explain(fn)(*args)``.

    The report lists graphs, guards and graph breaks. Without the C extension, the call is traced up to its
    first graph break and does not run.
    """

    def explained(*args: object, **kwargs: object) -> Explanation:
        records: list[FrameRecord] = []
        options = CaptureOptions(dynamic=dynamic)
        if not native.AVAILABLE:
            frame = frame_of_call(fn, args, kwargs)
            FrameCompiler(eager, options, None, None, records).inspect(frame, frame.function.__code__)
            return Explanation(tuple(records))
        compiler = _compiler(eager, options, None, records)
        _optimized(fn, compiler, lambda other: other)(*args, **kwargs)
        return Explanation(tuple(records))

    return explained


def reset() -> None:
    """Discard all compiled code. The next calls compile again."""
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
