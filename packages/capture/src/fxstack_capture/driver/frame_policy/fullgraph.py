"""``fullgraph=True``: a frame that would run in plain Python raises an error with the reason.

The check applies to the first frame of a call. Its callees are part of its graph, so they need no check.
"""

from __future__ import annotations

import functools
import inspect
from types import CodeType, FunctionType, MethodType

from fxstack_capture.driver.errors import plain
from fxstack_capture.driver.frame_policy.disabling import is_disabled
from fxstack_capture.driver.frame_policy.policy import has_foreign_modes, is_own


def demand_compiled(function: FunctionType) -> None:
    """Raise ``Unsupported`` if a frame of ``function``, the first frame of a call, would not be traced."""
    name = function.__qualname__
    if is_disabled(function):
        raise plain(f"{name}, which is excluded from compilation,")
    if is_own(function):
        raise plain(f"{name}, a function of the compiler,")
    if has_foreign_modes():
        raise plain(f"{name}, called under a mode or a transform that sees torch's calls,")


def first_frame_of(fn: object) -> CodeType | None:
    """Return the code object of the first frame of a call of ``fn``. None if the call begins in C code.

    ``FrameCompiler.first`` keeps it, to distinguish this frame from the frames of callees.
    """
    while isinstance(fn, (functools.partial, MethodType)):
        fn = fn.func if isinstance(fn, functools.partial) else fn.__func__
    if not isinstance(fn, FunctionType):
        # A call of a class begins in C code.
        fn = None if isinstance(fn, type) else getattr(type(fn), "__call__", None)  # noqa: B004 - the method itself
    return fn.__code__ if isinstance(fn, FunctionType) else None


def runs_later(code: CodeType) -> bool:
    """Whether ``code`` is that of a generator or a coroutine. Its body runs after the call and is not
    compiled.
    """
    return bool(code.co_flags & _LATER)


_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
