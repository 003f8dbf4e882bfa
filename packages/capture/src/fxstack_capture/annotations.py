"""Annotations by which a program controls compilation, such as ``disable`` and ``graph_break``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import torch

from fxstack_capture import native

F = TypeVar("F", bound="Callable[..., Any]")

DISABLED = "_fxstack_disable"
"""The attribute that marks a function as never compiled. Its value is the reason as text, or True."""


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Return ``fn`` as a callable that is never compiled. Functions that it calls are not compiled either.

    ``disable`` is also a decorator. A module is changed in place.

    Args:
        fn: A function, method or module. None returns a decorator.
        recursive: If False, only ``fn`` itself is not compiled, and the functions that it calls are.
            Compiling the result compiles ``fn``.
        reason: The reason, for people. ``explain`` shows it at the graph break.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, torch.nn.Module):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    check_callable(fn, "disable")
    if not recursive:
        return _disabled_alone(fn, reason)
    off = native.Disabled(fn) if native.AVAILABLE else fn

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return off(*args, **kwargs)

    setattr(disabled, DISABLED, reason or True)
    return disabled


def _disabled_alone(fn: Callable[..., Any], reason: str | None) -> Any:
    """Return a wrapper of ``fn`` for ``disable(recursive=False)``. The frame policy recognises the wrapper by
    its name.
    """

    @functools.wraps(fn)
    def nonrecursive_disable_wrapper(*args: object, **kwargs: object) -> Any:
        return fn(*args, **kwargs)

    setattr(nonrecursive_disable_wrapper, DISABLED, reason or True)
    return nonrecursive_disable_wrapper


def skip(fn: F) -> F:
    """Do not compile ``fn`` itself. Compile the functions that it calls. Returns ``fn``."""
    check_callable(fn, "skip")
    if isinstance(fn, torch.nn.Module):
        fn.forward = skip(fn.forward)
        return fn
    function = getattr(fn, "__func__", fn)
    if not isinstance(function, FunctionType):
        raise TypeError(f"skip: expected a Python function, got {fn!r}")
    setattr(function, DISABLED, True)
    if native.AVAILABLE:
        native.skip(function.__code__)
    return fn


def check_callable(fn: object, name: str) -> None:
    """Raise TypeError if ``fn`` is not callable. ``name`` is the name of the public function in the message."""
    if not callable(fn):
        raise TypeError(f"{name}: expected a function or module, got {fn!r}")


def graph_break(msg: str = "") -> None:
    """End the graph here. ``msg`` is the reason in reports of graph breaks. Does nothing in plain Python."""


def skip_frame(msg: str = "") -> None:
    """Run the calling function in plain Python, and compile the functions that it calls.

    Does nothing in plain Python.
    """


def is_compiling() -> bool:
    """Return True in compiled code, False in plain Python."""
    return False
