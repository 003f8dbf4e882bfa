"""Errors of graphs that cannot run again in plain Python: their tracebacks name the lines of the program.

The frame of the replacement, and the frames of generated code below it, are left out. In their place stand the
frames of the program at the call of the operator that raised the error.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType, TracebackType

from torch import fx

from fxstack_capture import native
from fxstack_capture.emit.builder import Builder, call, load
from fxstack_capture.emit.runtime import Continue
from fxstack_capture.interpreter.exceptions.tracebacks import TracebackStub, add_entry
from fxstack_interchange.operators.origins import ORIGIN, SOURCE


class Locating:
    """A ``try`` around the call of ``graph`` (``guarded``)."""

    def __init__(self, builder: Builder, graph: fx.Graph) -> None:
        traces = {node.name: trace for node in graph.nodes if (trace := node.meta.get("stack_trace"))}
        self._leave = builder.constant(leave_by_error(traces), "leave_by_error")
        self._exception = builder.constant(Exception, "Exception")
        self._error = builder.fresh("error")

    def guarded(self, graph_call: ast.stmt) -> ast.stmt:
        leaving = ast.Return(call(self._leave, load(self._error)))
        return ast.Try([graph_call], [ast.ExceptHandler(self._exception, self._error, [leaving])], [], [])


def leave_by_error(traces: Mapping[str, str]) -> Callable[[Exception], Continue]:
    """Return a function that ends the frame with an error. ``traces``: stack traces of nodes by their names."""

    def leave(error: Exception) -> Continue:
        located = _located(error.__traceback__, traces)
        if located is not None:
            BaseException.__dict__["__traceback__"].__set__(error, located)
        return Continue((native.Disabled(tuple, error), ()))

    return leave


def _located(traceback: TracebackType | None, traces: Mapping[str, str]) -> TracebackType | None:
    """Return the traceback with the frames of the program, or None if the operator is unknown."""
    while traceback is not None:
        trace = _trace_at(traceback.tb_frame, traceback.tb_lineno, traces)
        if trace:
            rest = traceback.tb_next
            for code, line in reversed([*_frames(trace)]):
                rest = add_entry(rest, TracebackStub(code), line)
            return rest
        traceback = traceback.tb_next
    return None


def _trace_at(frame: FrameType, line: int, traces: Mapping[str, str]) -> str:
    """Return the stack trace of the node that a line of generated code runs, or ""."""
    source = frame.f_globals.get(SOURCE)
    if source is not None:
        name = source.splitlines()[line - 1].partition(ORIGIN)[2]
        return traces.get(name, "")
    module = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
    if not isinstance(module, fx.GraphModule):
        return ""
    name = linecache.getline(frame.f_code.co_filename, line).partition("=")[0].strip()
    nodes = (node for node in module.graph.nodes if node.name == name)
    return next((node.meta.get("stack_trace", "") for node in nodes), "") or traces.get(name, "")


_ENTRY = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+), in (?P<name>.*)')


def _frames(trace: str) -> Iterator[tuple[CodeType, int]]:
    """Yield a code object with the names of each frame of a stack trace, and its line."""
    for entry in _ENTRY.finditer(trace):
        name = entry["name"]
        code = _empty.__code__.replace(
            co_filename=entry["file"], co_name=name.rpartition(".")[2], co_qualname=name
        )
        yield code, int(entry["line"])


def _empty() -> None: ...
