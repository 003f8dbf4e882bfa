"""Errors of graphs that cannot run again in plain Python: their tracebacks name the lines of the program.

The frame of the replacement, and the frames of generated code below it, are left out. In their place stand the
frames of the program at the call of the operator that raised the error.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from torch import fx

from fxstack_capture import native
from fxstack_capture.emit.builder import Builder, call, load
from fxstack_capture.emit.runtime import Continue
from fxstack_interchange.locations.located_errors import located, stack_traces


class Locating:
    """A ``try`` around the call of ``graph`` (``guarded``)."""

    def __init__(self, builder: Builder, graph: fx.Graph) -> None:
        self._leave = builder.constant(leave_by_error(stack_traces(graph)), "leave_by_error")
        self._exception = builder.constant(Exception, "Exception")
        self._error = builder.fresh("error")

    def guarded(self, graph_call: ast.stmt) -> ast.stmt:
        leaving = ast.Return(call(self._leave, load(self._error)))
        return ast.Try([graph_call], [ast.ExceptHandler(self._exception, self._error, [leaving])], [], [])


def leave_by_error(traces: Mapping[str, str]) -> Callable[[Exception], Continue]:
    """Return a function that ends the frame with an error. ``traces``: stack traces of nodes by their names."""

    def leave(error: Exception) -> Continue:
        found = located(error.__traceback__, traces)
        if found is not None:
            BaseException.__dict__["__traceback__"].__set__(error, found)
        return Continue((native.Disabled(tuple, error), ()))

    return leave
