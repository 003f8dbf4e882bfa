"""What a program says to the compiler: leave this alone, end the graph here, am I being compiled?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import torch

from fxstack_capture import native

F = TypeVar("F", bound="Callable[..., Any]")

DISABLED = "_fxstack_disable"


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """``fn`` as it is: never compiled, nor anything that it calls. Also a decorator; modules are changed in place.

    Args:
        fn: A function, method or module; None gives a decorator.
        recursive: False: only ``fn`` itself is left alone, what it calls is compiled; compiling the result compiles ``fn``.
        reason: For people: why. Shown by ``explain`` where the graph breaks.
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
    @functools.wraps(fn)
    def nonrecursive_disable_wrapper(*args: object, **kwargs: object) -> Any:
        return fn(*args, **kwargs)

    setattr(nonrecursive_disable_wrapper, DISABLED, reason or True)
    return nonrecursive_disable_wrapper


def skip(fn: F) -> F:
    """``fn`` itself is not compiled; the functions that it calls are. Returns ``fn``."""
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
    if not callable(fn):
        raise TypeError(f"{name}: expected a function or module, got {fn!r}")


def graph_break(msg: str = "") -> None:
    """End the graph here; ``msg`` says why where breaks are shown. Does nothing in plain Python."""


def skip_frame(msg: str = "") -> None:
    """Run the function that calls this in plain Python; what it calls is compiled. Does nothing in plain Python."""


def is_compiling() -> bool:
    """True in code that is being compiled, False in plain Python."""
    return False
