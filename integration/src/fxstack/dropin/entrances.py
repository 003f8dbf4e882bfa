"""Functions of fxstack with the names and signatures that torch's compiler has.

Arguments that torch has and fxstack follows in another way are translated; an argument that changes nothing is
reported once, at the user's line. Calls that torch itself makes (``torchs_own``) go to torch's compiler.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

import torch

import fxstack_capture
from fxstack import api, backends
from fxstack.dropin.torchs_own import torchs_own, unless_torchs_own
from fxstack.pipeline import Backend
from fxstack.torch_interop import counters
from fxstack_capture.api import sharing_entries
from fxstack_capture.calls.marks.program_rules import register
from fxstack_capture.calls.rules.torch.compiler_functions import compiled_inside
from fxstack_capture.driver.reports.explanation import Explanation
from fxstack_interchange.torch_facts.compiled_autograd import MODULE
from fxstack_interchange.user_warnings import warn_user

_MAX_SHARED: Final = 256
"""Maximum number of kept functions, each with one set of arguments of ``torch.compile``; the oldest are dropped."""

_SHARED: Final[OrderedDict[Hashable, tuple[Callable[[Any], Any], Any]]] = OrderedDict()
"""By code object and arguments of ``torch.compile``: a decorator that shares the compiled entries, and the log."""


def compile_shared(how: Hashable, decorate: Callable[[Any], Any], fn: Callable[..., Any]) -> Any:
    """Compile ``fn`` by ``decorate``, or share the code of an equal function that was compiled with equal arguments.

    In torch, compiled code belongs to the code object. Programs compile a function where they use it: an optimizer in
    each step, a module in each ``forward``. A module is compiled anew. ``how`` has the arguments of ``torch.compile``.
    """
    code = _code_of(fn)
    if code is None or not _is_hashable(how):
        return decorate(fn)
    key = code, how
    entry = _SHARED.get(key)
    if entry is None:
        compiled = decorate(fn)
        _SHARED[key] = sharing_entries(compiled), api.compile_log(compiled)
        if len(_SHARED) > _MAX_SHARED:
            _SHARED.popitem(last=False)
        return compiled
    _SHARED.move_to_end(key)
    compile_sharing, log = entry
    compiled = compile_sharing(fn)
    object.__setattr__(compiled, api.LOG_ATTRIBUTE, log)
    return compiled


def forget_shared() -> None:
    """Forget the compiled functions that equal callables share."""
    _SHARED.clear()


def _code_of(fn: object) -> CodeType | None:
    function = fn.__func__ if type(fn) is MethodType else fn
    return function.__code__ if type(function) is FunctionType else None


def _is_hashable(value: object) -> bool:
    """Whether a value can be a key of a dict."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


@unless_torchs_own
def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: object = None,
) -> Any:
    """``torch.compile`` on fxstack: see ``fxstack.compile``.

    Raises:
        RuntimeError: if both ``mode`` and ``options`` are given, as in torch.
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if torch.compiler.is_exporting():
        warn_user("torch.compile is ignored when called inside torch.export region", UserWarning)
        return model if model is not None else lambda fn: fn
    chosen = dict(options or {})
    if chosen.pop("use_aoti", False):
        _has_no_effect("options={'use_aoti': True}", "compiled programs are stored on disk by themselves")
    if name is not None:
        _has_no_effect(f"name={name!r}", "compile_log and explain name the functions of the program")
    if shapes_spec is not None:
        _has_no_effect("shapes_spec", "fxstack.compile takes a contract as dynamic_shapes")
    if not backends.is_own(backend):
        frontend_options = {key: chosen.pop(key) for key in _OF_FRONTEND if key in chosen}
        mode_arguments = {} if mode in (None, "default") else {"mode": mode}
        backend = backends.with_arguments(
            backend, {**mode_arguments, **({"options": chosen} if chosen else {})}
        )
        mode, chosen = None, frontend_options
    if recompile_limit is not None:
        chosen["recompile_limit"] = recompile_limit
    api_compile: Any = api.compile
    decorate = api_compile(
        fullgraph=fullgraph,
        dynamic=dynamic,
        backend=backend,
        mode=mode,
        options=chosen or None,
        disable=disable,
    )
    how = fullgraph, dynamic, backend or backends.get_default_backend(), mode, tuple(sorted(chosen.items()))
    shared = decorate if disable or isolate_recompiles else partial(compile_shared, how, decorate)
    return shared if model is None else shared(model)


_OF_FRONTEND = ("guard_filter_fn", "guard_fail_fn", "guard_export_fn")
"""The options that torch does not pass to a backend."""


@unless_torchs_own
def optimize(
    backend: str | Backend = "inductor",
    *,
    nopython: bool = False,
    error_on_graph_break: bool | None = None,
    guard_export_fn: object = None,
    guard_fail_fn: object = None,
    guard_filter_fn: object = None,
    disable: bool = False,
    dynamic: bool | None = None,
    package: object = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: object = None,
) -> Callable[[Any], Any]:
    """``torch._dynamo.optimize`` on fxstack: a decorator that compiles by ``backend``."""
    if package is not None:
        _has_no_effect("package", "compiled programs are stored on disk by themselves")
    hooks = {
        "guard_filter_fn": guard_filter_fn,
        "guard_fail_fn": guard_fail_fn,
        "guard_export_fn": guard_export_fn,
    }
    options = {name: hook for name, hook in hooks.items() if hook is not None}
    decorate: Callable[[Any], Any] = compile(
        fullgraph=nopython,
        dynamic=dynamic,
        backend=backend,
        options=options or None,
        disable=disable,
        recompile_limit=recompile_limit,
        isolate_recompiles=isolate_recompiles,
        shapes_spec=shapes_spec,
    )
    if not error_on_graph_break:
        return decorate

    def strict(fn: Callable[..., Any]) -> Any:
        return fxstack_capture.error_on_graph_break(True)(decorate(fn))

    return strict


@unless_torchs_own
def optimize_assert(backend: str | Backend, **keywords: Any) -> Callable[[Any], Any]:
    """``torch._dynamo.optimize_assert`` on fxstack: ``optimize`` for one whole graph."""
    supported = {name: value for name, value in keywords.items() if name in _OF_OPTIMIZE}
    return optimize(backend, nopython=True, **supported)


_OF_OPTIMIZE = frozenset({"dynamic", "package", "recompile_limit", "isolate_recompiles", "shapes_spec"})


def explain(f: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """``torch._dynamo.explain`` on fxstack: ``explain(f)(*args)`` returns an ``Explanation``."""
    explained: Callable[..., Explanation] = fxstack_capture.explain(f)
    return explained(*args, **kwargs) if args or kwargs else explained


def list_backends(
    original: Callable[..., list[str]], exclude_tags: tuple[str, ...] = ("debug", "experimental")
) -> list[str]:
    """``torch.compiler.list_backends`` on fxstack: the backends of both compilers."""
    return sorted({*backends.list_backends(), *original(exclude_tags)})


def run(fn: Callable[..., Any] | None = None) -> Any:
    """``torch._dynamo.run`` on fxstack: run compiled code, and compile nothing more.

    Without ``fn``, return the decorator, which is also a context manager.
    """
    return fxstack_capture.set_stance("eager_on_recompile") if fn is None else fxstack_capture.run(fn)


def set_enable_guard_collectives(original: Callable[[bool], bool], enabled: bool) -> bool:
    """``torch.compiler.set_enable_guard_collectives`` on fxstack, which has no such collectives."""
    if enabled:
        because = "each process decides for itself whether it compiles"
        _has_no_effect("torch.compiler.set_enable_guard_collectives(True)", because)
    return original(enabled)


def reset() -> None:
    """``torch._dynamo.reset`` on fxstack: forget everything that was compiled, also graphs of backward passes.

    Torch's own compiler forgets what it compiled for eager operators.
    """
    original = torchs_own("reset")
    if original is not None:
        original()
    fxstack_capture.reset()
    forget_shared()
    counters.reset()
    compiled_autograd = sys.modules.get(MODULE)
    if compiled_autograd is not None:
        vars(compiled_autograd)["reset"]()


def _has_no_effect(argument: str, because: str) -> None:
    """Warn once that ``argument`` of ``torch.compile`` has no effect here.

    ``because``: the reason, without a period.
    """
    text = f"torch.compile on fxstack: {argument} has no effect: {because}."
    if text not in _REPORTED:
        _REPORTED.add(text)
        warn_user(text, UserWarning)


_REPORTED: set[str] = set()

compile.__module__ = "torch"
register(compile, compiled_inside)
