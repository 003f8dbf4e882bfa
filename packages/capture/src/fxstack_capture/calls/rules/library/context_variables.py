"""Context variables: guards check the values that are read; writes stay in the trace until the graph has run.

Guards and replacement code read a variable with ``ContextVar.get``, so they see the context of the call. A
token represents the previous value. Only the real ``set`` can create a real token. A token that leaves the
trace therefore makes the frame run in plain Python.
"""

from __future__ import annotations

from contextvars import Context, ContextVar, Token, copy_context
from typing import Any, Final

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.calls.rules import RULES
from fxstack_capture.guards.records import IdentityIs
from fxstack_capture.sources import Converted, pinned
from fxstack_capture.trace.lazy_dict import ABSENT, DEFERRED
from fxstack_capture.trace.state import Args, Kwargs, Trace

# Limits: a token that is kept across a graph break runs the frame in plain Python.


_GET: Final[Any] = ContextVar.__dict__["get"]


@RULES.rule(ContextVar)
@calls_program
def _new(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> ContextVar[Any]:
    """Create a variable that only the trace uses. It cannot be rebuilt, so its writes are not replayed."""
    variable: ContextVar[Any] = ContextVar(*args, **kwargs)
    trace.objects.note_new(variable)
    return variable


@RULES.unpacked(_GET, count=(1, 2))
@calls_program
def _get(trace: Trace, var: ContextVar[Any], *default: object) -> Any:
    """Return the value that the trace has set, or the value of the context of the call."""
    value = _written(trace).get(var, DEFERRED)
    if value is not DEFERRED:
        return value
    source = trace.objects.source_of(var)
    if source is None:
        return _GET(var, *default)  # a new variable: nobody has set it
    if var.get(ABSENT) is ABSENT and (default or _has_no_default(var)):
        trace.guard(Converted(pinned(ABSENT, "absent"), var.get), IdentityIs(ABSENT, id(ABSENT)))
        return _GET(var, *default)  # what was given, or a LookupError
    return trace.objects.enter(_GET(var), Converted(source, _GET))


def _has_no_default(var: ContextVar[Any]) -> bool:
    """Whether reading an unset variable raises LookupError."""
    try:
        var.get()
    except LookupError:
        return True
    return False


@RULES.rule(ContextVar.__dict__["set"])
def _set(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Token[Any]:
    """Set the variable in the trace, and return a token that only the trace can use."""
    var, value = args
    written = _written(trace)
    before = written.get(var, DEFERRED)
    token = Context().run(_token, var, _get(trace, var) if _is_set(trace, var) else ABSENT)
    written[var] = value
    trace.objects.tokens[id(token)] = token, before
    return token


def _is_set(trace: Trace, var: ContextVar[Any]) -> bool:
    """Whether the variable has a value, set in the trace or in the context."""
    return _written(trace).get(var, DEFERRED) is not DEFERRED or var in copy_context()


def _token(var: ContextVar[Any], before: object) -> Token[Any]:
    """Return a token with the previous value. Only the trace uses this token."""
    if before is not ABSENT:
        var.set(before)
    return var.set(None)


@RULES.rule(ContextVar.__dict__["reset"])
def _reset(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Set the variable in the trace to its value before a ``set`` of the trace."""
    var, token = args
    tokens = trace.objects.tokens
    if id(token) not in tokens or token.var is not var:
        raise graph_break("unsupported-call", "ContextVar.reset with a token that it did not give")
    _, _written(trace)[var] = tokens.pop(id(token))


def _written(trace: Trace) -> dict[ContextVar[Any], Any]:
    """Return the values that the trace has set, by variable."""
    written: dict[ContextVar[Any], Any] = trace.objects.context
    return written
