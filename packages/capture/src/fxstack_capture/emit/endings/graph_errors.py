"""Replacement code that handles an error of its graph: restore torch's state, or name the program's lines.

The traceback of the error omits the frame of the replacement and the frames of generated code below it.
Instead, it has the program's frames at the call of the operator that raised the error.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from torch import fx

from fxstack_capture import native
from fxstack_capture.emit.builder import Builder, call, load, store
from fxstack_capture.emit.runtime import Continue
from fxstack_capture.torch_side.global_state import state
from fxstack_interchange.locations.located_errors import locate_traceback, stack_traces


@dataclass(frozen=True, slots=True)
class GraphErrors:
    """The code around the call of a graph that handles an error of the graph."""

    handler: ast.ExceptHandler
    """The handler of a ``try`` around the call of the graph."""
    before: tuple[ast.stmt, ...] = ()
    """The statements before the call."""
    checks: tuple[ast.stmt, ...] = ()
    """The statements after the call, which test the assumptions."""

    def guarded(self, graph_call: ast.stmt) -> ast.stmt:
        """Return the graph call inside of a ``try`` with the handler."""
        return ast.Try([graph_call], [self.handler], [], [])


def leaving_by(builder: Builder, leaving: Callable[[ast.expr], list[ast.stmt]]) -> ast.ExceptHandler:
    """Return a handler of any ``Exception`` of the graph.

    ``leaving`` takes the expression of the error and returns the statements of the handler.
    """
    error = builder.fresh("error")
    return ast.ExceptHandler(builder.constant(Exception, "Exception"), error, leaving(load(error)))


def located_errors(builder: Builder, graph: fx.Graph) -> GraphErrors:
    """Return the handler that lets errors of ``graph`` leave the frame with the program's lines in the
    traceback.

    Used for graphs without a fallback.
    """
    leave = builder.constant(leave_by_error(stack_traces(graph)), "leave_by_error")
    return GraphErrors(leaving_by(builder, lambda error: [ast.Return(call(leave, error))]))


def leave_by_error(traces: Mapping[str, str]) -> Callable[[Exception], Continue]:
    """Return a function that ends the frame with an error of the graph.

    Replacement code calls the function with the error. ``traces`` maps node names to the stack traces of the
    nodes.
    """

    def leave(error: Exception) -> Continue:
        """Continue by raising ``error``. Its traceback gets the program's lines in place of the graph's
        frames.
        """
        traceback = locate_traceback(error.__traceback__, traces)
        if traceback is not None:
            BaseException.__dict__["__traceback__"].__set__(error, traceback)
        return Continue((native.Disabled(tuple, error), ()))

    return leave


def restore_state_on_error(builder: Builder, variables: Sequence[state.Variable]) -> GraphErrors:
    """Return a handler that restores torch's state and raises the error again.

    ``variables`` are the parts of torch's state that the graph sets.
    """
    # A graph sets torch's state by calls. ``torch.no_grad()`` is one call at each end, and an error skips the
    # second call.
    present = builder.fresh("torch_state")
    read = builder.constant(partial(state.present, variables), "read_torch_state")
    write = builder.constant(partial(state.put_back, variables=variables), "put_back_torch_state")
    undo = ast.Expr(call(write, load(present)))
    handler = ast.ExceptHandler(builder.constant(BaseException, "BaseException"), None, [undo, ast.Raise()])
    return GraphErrors(handler, (ast.Assign([store(present)], call(read)),))
