"""What a program says to the compiler: leave this alone, end the graph here, am I being compiled?"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from fxstack_capture import native

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

DISABLED = "_fxstack_disable"


def disable(fn: F) -> F:
    """``fn`` as it is: never compiled, nor anything that it calls. Also a decorator; modules are changed in place."""
    if isinstance(fn, torch.nn.Module):
        fn.forward = disable(fn.forward)
        return fn
    if not callable(fn):
        raise TypeError(f"disable: expected a function or module, got {fn!r}")
    off = native.Disabled(fn) if native.AVAILABLE else fn

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return off(*args, **kwargs)

    setattr(disabled, DISABLED, True)
    return disabled  # type: ignore[return-value]


def graph_break() -> None:
    """End the graph here. Does nothing in plain Python."""


def is_compiling() -> bool:
    """True in code that is being compiled, False in plain Python."""
    return False
