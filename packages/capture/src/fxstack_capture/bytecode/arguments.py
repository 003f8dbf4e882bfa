"""The arguments of a code object."""

from __future__ import annotations

import inspect
from types import CodeType

STARRED = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def argument_names(code: CodeType) -> tuple[str, ...]:
    """Return the names of the slots that a call fills: positional, keyword-only, ``*args``, ``**kwargs``."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


def with_positional_arguments(code: CodeType) -> CodeType:
    """Return ``code`` with all arguments positional.

    A call of the new code with the values of all arguments starts its frame a second time. Replacement code
    calls it to fall back to plain Python.
    """
    return code.replace(
        co_argcount=len(argument_names(code)),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~STARRED,
    )
