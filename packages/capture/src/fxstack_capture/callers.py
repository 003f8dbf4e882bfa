"""The functions of the compiler that call code of the program, so that they may raise its exceptions.

All other functions of the compiler make calls for the compiler itself. An exception in them is a failure of
the compiler (``interpreter.exceptions.origins``).
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

_F = TypeVar("_F", bound="Callable[..., Any]")

CALLERS: set[CodeType] = set()
"""The code objects of these functions. Only the decorator ``calls_program`` adds to this set."""


def calls_program(fn: _F) -> _F:
    """Decorator: the calls that ``fn`` itself makes may raise exceptions of the program."""
    CALLERS.add(fn.__code__)
    return fn


@calls_program
def plainly(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``fn`` on behalf of the program. The program gets its result or its exception."""
    return fn(*args, **kwargs)
