"""Exceptions that bytecode itself raises, and exception chaining as in CPython's ``errors.c``."""

from __future__ import annotations

import re
from types import TracebackType

from fxstack_capture.breaks import graph_break
from fxstack_capture.interpreter.frame import Frame


class InterruptedTracing(BaseException):
    """The user pressed Control-C while a frame was traced.

    ``account`` replaces KeyboardInterrupt by this exception, so that no handler of the program catches it.
    """


class Flight:
    """The context and traceback, as the program sees them, of an exception that propagates through
    interpreted frames.

    ``anew``: a statement has just raised the exception, and ``account`` has not set its context yet.
    ``counted``: ``traceback`` already has an entry for the current frame.
    """

    __slots__ = ("anew", "context", "counted", "error", "traceback")

    def __init__(
        self,
        error: BaseException,
        traceback: TracebackType | None,
        *,
        anew: bool = False,
        counted: bool = False,
    ) -> None:
        self.error = error
        self.context = error.__context__
        self.traceback = traceback
        self.anew = anew
        self.counted = counted


# CPython sets these attributes without the ``__setattr__`` of the exception's class. These setters do the
# same.
_set_cause = BaseException.__dict__["__cause__"].__set__
_set_context = BaseException.__dict__["__context__"].__set__
_set_traceback = BaseException.__dict__["__traceback__"].__set__


def set_cause(error: BaseException, cause: BaseException | None) -> None:
    """Set ``__cause__``, as ``raise error from cause`` does."""
    _set_cause(error, cause)


def set_context(error: BaseException, context: BaseException | None) -> None:
    """Set ``__context__``: the exception that was being handled when ``error`` was raised."""
    _set_context(error, context)


def set_traceback(error: BaseException, traceback: TracebackType | None) -> None:
    """Set ``__traceback__``: the frames through which ``error`` has passed."""
    _set_traceback(error, traceback)


def chain_context(exception: BaseException, handled: BaseException | None) -> None:
    """Set ``__context__`` of ``exception`` as CPython does if the program raises it while handling
    ``handled``.

    If the chain of contexts from ``handled`` leads to ``exception``, the chain is cut to avoid a cycle.
    """
    if handled is None or handled is exception:
        return
    seen: set[int] = set()
    link = handled
    while id(link) not in seen:
        seen.add(id(link))
        context = link.__context__
        if context is None:
            break
        if context is exception:
            set_context(link, None)
            break
        link = context
    set_context(exception, handled)


_SYMBOL = re.compile(r"\bSym(Int|Float|Bool)\b")
_ARRAY = re.compile(r"\bArray\b")
_INSIDE = re.compile(r"\bSym(Int|Float|Bool)\b|\bTraceGenerator\b|\bFakeTensor\b")


def name_types_as_outside(error: BaseException) -> None:
    """Replace class names of the tracer in the message of an error from C code, for example ``SymInt`` by
    ``int``.

    ``account`` calls this before a handler of the program sees the error. Raises GraphBreak if the message
    names the tracer's class of arrays.
    """
    text = error.args[0] if error.args else None
    if type(text) is str and isinstance(error, TypeError) and _ARRAY.search(text):
        raise graph_break("unsupported-object", "an error that names the class of an array")
    if type(text) is str and _INSIDE.search(text):
        error.args = (_INSIDE.sub(_outside_name, text), *error.args[1:])


def mentions_symbols(error: BaseException) -> bool:
    """Return whether the message names a symbolic number. C code may have refused the number where it accepts
    an int.
    """
    return _SYMBOL.search(str(error)) is not None


def _outside_name(match: re.Match[str]) -> str:
    """Return the name in eager's message for the tracer class in ``match``, for example ``int`` for
    ``SymInt``.
    """
    if match.group() == "FakeTensor":
        return "Tensor"
    return (match.group(1) or "generator").lower()


def undefined_name(name: str) -> NameError:
    """Return CPython's NameError for ``name``, which is neither a global nor a builtin."""
    return NameError(f"name '{name}' is not defined", name=name)


def unbound_local(frame: Frame, index: int) -> UnboundLocalError:
    """Return CPython's UnboundLocalError for the local variable in slot ``index``."""
    name = frame.program.names[index]
    return UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")


def unbound_cell(frame: Frame, index: int) -> NameError:
    """Return CPython's error for the empty cell in slot ``index``.

    This is UnboundLocalError for a cell of the function itself, and NameError for a cell of an enclosing
    function.
    """
    name = frame.program.names[index]
    if name in frame.code.co_cellvars:
        return unbound_local(frame, index)
    return NameError(
        f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope",
        name=name,
    )


def callable_description(fn: object) -> str:
    """Return the name of a callable in CPython's messages about arguments, for example ``module.f()``."""
    qualname = getattr(fn, "__qualname__", None)
    if qualname is None:
        return str(fn)
    module = getattr(fn, "__module__", None)
    if module is None or module == "builtins":
        return f"{qualname}()"
    return f"{module}.{qualname}()"
