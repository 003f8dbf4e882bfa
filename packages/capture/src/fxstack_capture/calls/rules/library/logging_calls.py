"""Logging while tracing: a disabled level records nothing. An enabled level logs after the graph has run.

If the message and the arguments are plain values, the program cannot observe that a record is written later.
The real call is deferred to the end of the frame, in order with other deferred calls. Any other message or
argument breaks the graph. A record for a handler or filter of the program also breaks the graph, because the
program may read its side effects.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.rules import RULES
from fxstack_capture.sources import pinned
from fxstack_capture.trace.constants import IMMUTABLE_TYPES, is_constant_key
from fxstack_capture.trace.effects import Call
from fxstack_capture.trace.state import Args, Kwargs, Trace

# Limits: isEnabledFor is computed from the levels. It ignores the cache of a logger, which may be out of date
# for a logger without a manager (logging.Logger(name)).


@RULES.rule(logging.Logger.isEnabledFor)
def _is_enabled_for(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> bool:
    """Compute the result from the levels. The cache and its lock are not observable."""
    logger, level = args
    load, calls = trace.objects.load_attr, trace.calls
    if calls.truth(load(logger, "disabled")):
        return False
    if load(load(logger, "manager"), "disable") >= level:
        return False
    return bool(level >= calls.call(load(logger, "getEffectiveLevel"), (), {}))


@RULES.rule(logging.getLogger)
def _get_logger(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return an existing logger. Creating a logger takes the lock of the module and breaks the graph."""
    name = args[0] if args else kwargs.get("name")
    load: Any = trace.objects.load_attr
    if not name:
        return load(logging, "root")
    loggers = load(load(logging.Logger, "manager"), "loggerDict")
    logger_found = trace.calls.call(dict.get, (loggers, name), {}) if type(name) is str else None
    if not isinstance(logger_found, logging.Logger):
        raise graph_break("side-effect-call", f"logging.getLogger of a new logger, {name!r}")
    return logger_found


@RULES.rule(logging.Logger._log)
def _log(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Log after the graph has run. Break the graph for a record with an exception or a stack, and if the
    program could observe when the record is written.
    """
    if trace.calls.truth(trace.calls.call(_is_heard_by_the_program, (args[0],), {})):
        raise graph_break("side-effect-call", "a log record for a handler or filter of the program's own")
    if len(args) > _EXC_INFO or kwargs.get("exc_info") or kwargs.get("stack_info"):
        raise graph_break("side-effect-call", "a log record with an exception or a stack")
    log: Any = logging.Logger._log
    position = _caller(trace, kwargs.get("stacklevel", 1))
    if position is not None:
        log = functools.partial(_write, position)
        kwargs = {"extra": kwargs.get("extra")}
    defer(trace, log, args, kwargs)


def _caller(trace: Trace, level: object) -> tuple[str, int, str] | None:
    """Return the file, line and function that a record names. None if their frame is not traced.

    ``level`` is the ``stacklevel`` of the call, as for ``Logger.findCaller``.
    """
    frame: Any = trace.interp.current_frame()
    # ``logging`` searches for a caller only if ``_srcfile`` is set.
    while frame is not None and type(level) is int and vars(logging)["_srcfile"]:
        code = frame.code
        if not frame.program.hidden and not _is_internal(code.co_filename):
            level -= 1
            if level <= 0:
                return code.co_filename, frame.line, code.co_name
            if code.co_name == "forward":  # the trace has no frames of nn.Module, so skip them
                return None
        frame = frame.back
    return None


def _is_internal(file: str) -> bool:
    """Whether ``findCaller`` skips the frames of this file."""
    logging_file: Any = vars(logging)["_srcfile"]
    return os.path.normcase(file) == logging_file or ("importlib" in file and "_bootstrap" in file)


def _write(
    position: tuple[str, int, str],
    logger: logging.Logger,
    level: int,
    message: str,
    args: Args,
    *,
    extra: dict[str, Any] | None,
) -> None:
    """Log as ``Logger._log`` does for a call at ``position`` (file, line, function)."""
    file, line, function = position
    record = logger.makeRecord(logger.name, level, file, line, message, args, None, function, extra, None)
    logger.handle(record)


_EXC_INFO: Final = 4
"""The position of ``exc_info`` among the arguments of ``Logger._log``. The arguments from there on
(exception, stack) are read at the call.
"""
_KNOWN = frozenset({*sys.stdlib_module_names, "_pytest", "rich", "absl", "torch"}) - {"__main__"}
"""Packages whose handlers write records elsewhere or buffer them, so that the program cannot observe the time."""


def _is_of_the_program(obj: object, methods: tuple[str, ...]) -> bool:
    """Whether a logger or handler belongs to the program.

    Its class is the program's, or the program has replaced one of its ``methods``.
    """
    if type(obj).__module__.partition(".")[0] not in _KNOWN:
        return True
    return any(name in obj.__dict__ for name in methods)


def _is_heard_by_the_program(logger: Any) -> bool:
    """Whether a record reaches code of the program.

    The trace interprets this function, so that everything it reads is guarded.
    """
    if logger.filters or _is_of_the_program(logger, ("handle", "makeRecord", "callHandlers")):
        return True
    while logger:
        for handler in logger.handlers:
            if handler.filters or _is_of_the_program(handler, ("handle", "emit", "format")):
                return True
        logger = logger.parent if logger.propagate else None
    return False


def defer(trace: Trace, fn: object, args: Args, kwargs: Kwargs) -> None:
    """Call ``fn`` for real after the graph.

    The receiver must be from outside. All other arguments must be plain data. Otherwise, break the graph.
    """
    objects = trace.objects
    values = (*args[1:], *kwargs.values())
    if objects.source_of(args[0]) is None or not all(map(_is_plain, values)):
        raise graph_break("side-effect-call", "a log record with arguments made by the program")
    objects.deferred.append(Call(pinned(fn, "log"), args, dict(kwargs)))


def _is_plain(value: Any) -> bool:
    """Whether an argument of a record is plain data. Its text then cannot change before it is written."""
    kind = type(value)
    if kind is tuple:
        return all(map(_is_plain, value))
    return kind in IMMUTABLE_TYPES or is_constant_key(value)


def is_log_once(fn: Callable[..., Any], args: Args) -> bool:
    """Whether ``fn`` is a cached function of a logger, such as ``warning_once``.

    When the frame runs, the cache decides whether such a function logs again.
    """
    return bool(args) and isinstance(args[0], logging.Logger) and fn.__name__.endswith("_once")
