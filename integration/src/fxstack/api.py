"""``fxstack.compile``: torch.compile's signature over the four stages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, overload

import torch

import fxstack_capture
from fxstack.backends import get_default_backend, resolve_backend
from fxstack.log import CompileLog
from fxstack.pipeline import Backend
from fxstack.settings import CHECKS, CompileOptions, make_options

F = TypeVar("F", bound=Callable[..., Any])

LOG_ATTRIBUTE = "__fxstack_log__"


@overload
def compile(
    model: F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    dynamic_shapes: object = ...,
    backend: str | Backend | None = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    disable: bool = ...,
) -> F: ...


@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    dynamic_shapes: object = ...,
    backend: str | Backend | None = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | None = ...,
    disable: bool = ...,
) -> Callable[[F], F]: ...


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    dynamic_shapes: object = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function or module; also a decorator, with or without arguments.

    Args:
        model: A callable or ``torch.nn.Module``. If omitted, return a decorator.
        fullgraph: Raise an error at a graph break.
        dynamic: True: sizes are symbolic from the first call. False: every size is specialised. None: a size
            becomes symbolic when it changes.
        dynamic_shapes: A contract about sizes of arguments as in ``torch.export`` (``Dim`` and its hints, by
            argument name). A violation is an error that names the argument, or the line of the program that
            needs one size.
        backend: ``"inductor"`` (this project's, the default unless ``set_default_backend`` changed it),
            ``"aot_eager"``, ``"eager"``, a name registered in the entry-point group
            ``torch_dynamo_backends``, or a callable ``(GraphModule, example_inputs) -> callable``.
        mode: See ``fxstack.settings.MODES``.
        options: ``partitioner``, and the fields of ``fxstack_capture.CaptureOptions``,
            ``fxstack_functionalize.AotOptions``, ``fxstack_partition.PartitionOptions`` and
            ``fxstack_inductor.InductorOptions``: ``{"budget": 0.3}``, or under the name of the stage
            ``{"partition": {"budget": 0.3}}``. An option precedes the argument of the same name.
        disable: Return the model unchanged. With ``TORCH_COMPILE_DISABLE=1`` in the environment, as for
            ``torch.compile``, the compiled callable runs everything in plain Python.

    Raises:
        OptionError: if a mode or option is unknown; it is a ValueError and a RuntimeError.
        ValueError: if the backend is unknown, or ``dynamic`` is not True, False or None.
        TypeError: if the model is not callable, or ``dynamic_shapes`` is no specification.
    """
    if dynamic not in (None, True, False):
        raise ValueError(f"fxstack.compile: dynamic must be True, False or None, not {dynamic!r}.")
    if disable:
        return model if model is not None else lambda fn: fn
    again = functools.partial(
        compile,
        fullgraph=fullgraph,
        dynamic=dynamic,
        dynamic_shapes=dynamic_shapes,
        backend=backend,
        mode=mode,
        options=options,
    )
    # Unprofitable code is left to Python only with the backend that is for speed. The mode "safe" decides itself,
    # graph by graph.
    is_for_speed = (get_default_backend() if backend is None else backend) == "inductor" and mode != "safe"
    arguments = {"fullgraph": fullgraph, "dynamic": dynamic, "leave_unprofitable": is_for_speed}
    decorate = _decorator(backend, make_options(mode, options, arguments), dynamic_shapes, again)
    return decorate if model is None else decorate(model)


def _decorator(
    backend: str | Backend | None, options: CompileOptions, dynamic_shapes: object, again: Callable[..., Any]
) -> Callable[[Any], Any]:
    """Return the function that compiles a callable. ``again`` calls ``compile`` for parts of the program."""
    log = CompileLog()
    chosen = resolve_backend(backend, options, log)
    capture = replace(options.capture, leave_unprofitable=False) if CHECKS else options.capture

    def named_backend(forced: str | Backend) -> Backend:
        same = forced == (get_default_backend() if backend is None else backend)
        return chosen if same else resolve_backend(forced, options, log)

    def decorate(fn: Callable[..., Any]) -> Any:
        """Compile one function or module, and attach its log."""
        if not callable(fn):
            raise TypeError(f"fxstack.compile: expected a function or module, got {fn!r}.")
        compiled = fxstack_capture.optimize(
            chosen,
            options=capture,
            observer=log,
            dynamic_shapes=dynamic_shapes,
            named_backend=named_backend,
            again=again,
        )(fn)
        object.__setattr__(compiled, LOG_ATTRIBUTE, log)
        return compiled

    return decorate


def optimize(backend: str | Backend = "inductor", **keywords: Any) -> Callable[[F], F]:
    """``compile`` as a decorator whose first argument is the backend. Keywords are those of ``compile``."""
    decorate: Callable[[F], F] = compile(backend=backend, **keywords)
    return decorate


def compile_log(compiled: Callable[..., Any]) -> CompileLog:
    """Return the log of everything that a callable from ``compile`` has compiled so far.

    Raises:
        TypeError: if the callable does not come from ``fxstack.compile``.
    """
    log = getattr(compiled, LOG_ATTRIBUTE, None)
    if not isinstance(log, CompileLog):
        raise TypeError(f"{compiled!r} was not returned by fxstack.compile.")
    return log


def repro(fn: Callable[..., Any], *args: object, path: str | Path, **kwargs: object) -> list[Path]:
    """Compile ``fn`` anew, call it once with these arguments, and write a script for each graph that runs.

    A script has the graph's C kernels, its host program as Python, inputs with the layouts and ranges of the
    call's inputs, a check against the ATen graph in eager torch, and a timer. Kernels of a backward are
    written only when a backward runs, which ``repro`` does not do: ``compile(fn, options={"repro_dir":
    path})`` writes them too.

    Args:
        fn: A function or module. It may come from ``compile``; then its options are not kept.
        args: The arguments of the call.
        path: A folder, which is created. Scripts get the next free names ``graph_N.py``.
        kwargs: The keyword arguments of the call.

    Returns:
        The scripts, in the order of the calls; none if no part of ``fn`` could be captured.

    Raises:
        Exception: the exception of the call.
    """
    folder = Path(path)
    before = set(folder.glob("graph_*.py"))
    compile(_original(fn), options={"repro_dir": folder})(*args, **kwargs)
    written = set(folder.glob("graph_*.py")) - before
    return sorted(written, key=lambda file: int(file.stem.removeprefix("graph_")))


def _original(fn: Any) -> Callable[..., Any]:
    """Return ``fn`` as it was before it was compiled."""
    if getattr(fn, LOG_ATTRIBUTE, None) is None:
        original = fn
    else:
        original = fn._orig_mod if isinstance(fn, torch.nn.Module) else fn.__wrapped__
    result: Callable[..., Any] = original
    return result
