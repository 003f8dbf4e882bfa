"""The exceptions that bytecode itself raises, and how exceptions are chained, as in CPython's
``errors.c``.
"""

from __future__ import annotations

import re
from types import TracebackType

from fxstack_capture.interpreter.exceptions.chaining import set_context
from fxstack_capture.interpreter.frame import Frame


class InterruptedTracing(BaseException):
    """Control-C was pressed while a frame was traced: leaves the interpreter past the program's handlers."""


class Flight:
    """An exception on its way through interpreted frames, as the program sees it.

    ``anew``: it was raised by a statement that has not been accounted for. ``counted``:
    ``traceback`` has an entry for the frame that it is in.
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


def chain_context(exception: BaseException, handled: BaseException | None) -> None:
    """Set ``__context__`` when ``exception`` is raised while ``handled`` is handled, avoiding
    cycles.
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
_INSIDE = re.compile(r"\bSym(Int|Float|Bool)\b|\bTraceGenerator\b|\bFakeTensor\b")


def name_types_as_outside(error: BaseException) -> None:
    """Let the message of an error that C code has raised name types as they are called outside of
    the trace.
    """
    text = error.args[0] if error.args else None
    if type(text) is str and _INSIDE.search(text):
        error.args = (_INSIDE.sub(_outside_name, text), *error.args[1:])


def mentions_symbols(error: BaseException) -> bool:
    """Whether the error may be due to a number's being symbolic."""
    return _SYMBOL.search(str(error)) is not None


def _outside_name(found: re.Match[str]) -> str:
    if found.group() == "FakeTensor":
        return "Tensor"
    return (found.group(1) or "generator").lower()


def undefined_name(name: str) -> NameError:
    return NameError(f"name '{name}' is not defined", name=name)


def unbound_local(frame: Frame, index: int) -> UnboundLocalError:
    name = frame.program.names[index]
    return UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")


def unbound_cell(frame: Frame, index: int) -> NameError:
    """An empty cell: of this function, or of an enclosing one."""
    name = frame.program.names[index]
    if name in frame.code.co_cellvars:
        return unbound_local(frame, index)
    return NameError(
        f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope",
        name=name,
    )


def callable_description(fn: object) -> str:
    """How CPython names a callable in messages about its arguments."""
    qualname = getattr(fn, "__qualname__", None)
    if qualname is None:
        return str(fn)
    module = getattr(fn, "__module__", None)
    if module is None or module == "builtins":
        return f"{qualname}()"
    return f"{module}.{qualname}()"
