"""Compiled code that several calls of ``torch.compile`` share, as in torch, where it belongs to the code object.

Programs compile a function where they use it: an optimizer in each step, a module in each ``forward``. The second
call of ``torch.compile`` finds what the first has compiled. A module is compiled anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from fxstack import api
from fxstack_capture.api import sharing_entries

_MOST: Final = 256
"""Maximum number of kept functions, each with one set of arguments of ``torch.compile``; the oldest are dropped."""

_KNOWN: Final[OrderedDict[Hashable, tuple[Callable[[Any], Any], Any]]] = OrderedDict()
"""A decorator that shares entries, and the log, by code object and arguments."""


def compile_shared(how: Hashable, decorate: Callable[[Any], Any], fn: Callable[..., Any]) -> Any:
    """Compile ``fn`` by ``decorate``, unless a function with its code was compiled by the same arguments (``how``)."""
    code = _code_of(fn)
    if code is None or not _is_hashable(how):
        return decorate(fn)
    key = code, how
    entry = _KNOWN.get(key)
    if entry is None:
        compiled = decorate(fn)
        _KNOWN[key] = sharing_entries(compiled), api.compile_log(compiled)
        if len(_KNOWN) > _MOST:
            _KNOWN.popitem(last=False)
        return compiled
    _KNOWN.move_to_end(key)
    compile_sharing, log = entry
    compiled = compile_sharing(fn)
    object.__setattr__(compiled, api.LOG_ATTRIBUTE, log)
    return compiled


def forget() -> None:
    """Forget the compiled functions that equal callables share."""
    _KNOWN.clear()


def _code_of(fn: object) -> CodeType | None:
    function = fn.__func__ if type(fn) is MethodType else fn
    return function.__code__ if type(function) is FunctionType else None


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
