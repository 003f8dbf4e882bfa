"""The functions of the compiler in which an exception may be raised that is the program's: those that call what it calls.

Everything else in the compiler calls on its own behalf, and what is raised there is a failure of its own
(``interpreter.exceptions.origins``).
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

_F = TypeVar("_F", bound="Callable[..., Any]")

CALLERS: set[CodeType] = set()
"""The code of such functions. Filled by the decorator alone."""


def calls_program(fn: _F) -> _F:
    """A decorator: what the function itself calls may raise exceptions of the program."""
    CALLERS.add(fn.__code__)
    return fn


@calls_program
def plainly(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call that the program makes, for its result or its exception."""
    return fn(*args, **kwargs)
