"""Compute the frame that a call would start, without making the call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from fxstack_capture.guards.accesses import RealFrame


def function_of(fn: Any) -> tuple[FunctionType, tuple[Any, ...]]:
    """Return the Python function that a call of ``fn`` runs, and the leading arguments that ``fn`` adds.

    For a method, these arguments are ``(self,)``. Raises TypeError if no Python function runs.
    """
    leading: tuple[Any, ...] = ()
    for _ in range(10):
        if isinstance(fn, FunctionType):
            return fn, leading
        if isinstance(fn, MethodType):
            fn, leading = fn.__func__, (fn.__self__, *leading)
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            fn = MethodType(type(fn).__call__, fn)
    raise TypeError(f"capture: expected a Python function or module, got {fn!r}")


def frame_of_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> RealFrame:
    """Return the frame that ``fn(*args, **kwargs)`` would start, for ``capture``, ``export`` and ``explain``.

    Raises TypeError if the arguments do not fit.
    """
    function, leading = function_of(fn)
    bound = inspect.signature(function, follow_wrapped=False).bind(*leading, *args, **kwargs)
    bound.apply_defaults()
    cells = function.__closure__ or ()
    return real_frame(function, function.__code__, dict(bound.arguments), cells)


def real_frame(
    function: FunctionType, code: CodeType, arguments: dict[str, object], cells: tuple[CellType, ...]
) -> RealFrame:
    """Return a ``RealFrame`` of the data that the frame hook passes. ``cells`` are in the order of
    ``co_freevars``.
    """
    return RealFrame(function, arguments, dict(zip(code.co_freevars, cells, strict=True)))
