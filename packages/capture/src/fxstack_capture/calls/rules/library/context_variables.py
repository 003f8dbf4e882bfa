"""Context variables: guards check the values that are read. Writes stay in the trace until the graph has run.

Guards and replacement code read a variable by ``ContextVar.get``, so they use the context of the call. A
token represents the previous value of a variable. Only the real ``set`` can create a real token. Therefore a
frame runs in plain Python if a token leaves its trace.
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

# Limits: if a token is kept across a graph break, the frame runs in plain Python.


_GET: Final[Any] = ContextVar.__dict__["get"]


@RULES.rule(ContextVar)
@calls_program
def _new(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> ContextVar[Any]:
    """Create a variable that only the trace uses. It cannot leave the trace, so its writes are not replayed."""
    variable: ContextVar[Any] = ContextVar(*args, **kwargs)
    trace.objects.note_new(variable)
    return variable


@RULES.unpacked(_GET, count=(1, 2))
@calls_program
def _get(trace: Trace, var: ContextVar[Any], *default: object) -> Any:
    """Return the value that the trace has set. If it has set none, return the value in the context of the
    call.
    """
    value = _written(trace).get(var, DEFERRED)
    if value is not DEFERRED:
        return value
    source = trace.objects.source_of(var)
    if source is None:
        return _GET(var, *default)  # a new variable that nobody has set
    if var.get(ABSENT) is ABSENT and (default or _has_no_default(var)):
        trace.guard(Converted(pinned(ABSENT, "absent"), var.get), IdentityIs(ABSENT, id(ABSENT)))
        return _GET(var, *default)  # returns the given default, or raises LookupError
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
    """Set the variable in the trace, and return a token that is valid only in the trace."""
    var, value = args
    written = _written(trace)
    before = written.get(var, DEFERRED)
    token = Context().run(_token, var, _get(trace, var) if _is_set(trace, var) else ABSENT)
    written[var] = value
    trace.objects.tokens[id(token)] = token, before
    return token


def _is_set(trace: Trace, var: ContextVar[Any]) -> bool:
    """Whether the variable has a value, from the trace or from the context."""
    return _written(trace).get(var, DEFERRED) is not DEFERRED or var in copy_context()


def _token(var: ContextVar[Any], before: object) -> Token[Any]:
    """Return a token with the previous value. It is valid only in the trace."""
    if before is not ABSENT:
        var.set(before)
    return var.set(None)


@RULES.rule(ContextVar.__dict__["reset"])
def _reset(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Set the variable in the trace to the value before an earlier ``set`` of the trace. Break the graph for
    any other token.
    """
    var, token = args
    tokens = trace.objects.tokens
    if id(token) not in tokens or token.var is not var:
        raise graph_break("unsupported-call", "ContextVar.reset with a token that it did not give")
    _, _written(trace)[var] = tokens.pop(id(token))


def _written(trace: Trace) -> dict[ContextVar[Any], Any]:
    """Return the values that the trace has set: variable -> value."""
    written: dict[ContextVar[Any], Any] = trace.objects.context
    return written
