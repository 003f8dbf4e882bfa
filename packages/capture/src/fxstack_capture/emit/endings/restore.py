"""Restore torch's state after a graph that raised, since the program's ``with`` blocks end with the error.

A graph sets the state by calls. ``torch.no_grad()`` is one call at each end, and an error skips the second
call.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial

from fxstack_capture.emit.builder import Builder, call, load, store
from fxstack_capture.torch_side.global_state import state


class Restore:
    """Statements ``before`` the call of the graph, and a ``try`` around the call (``guarded``).

    ``variables`` is the state that the graph sets.
    """

    def __init__(self, builder: Builder, variables: Sequence[state.Variable]) -> None:
        present = builder.fresh("torch_state")
        read = builder.constant(partial(state.present, variables), "read_torch_state")
        write = builder.constant(partial(state.put_back, variables=variables), "put_back_torch_state")
        self._error = builder.constant(BaseException, "BaseException")
        self._undo = ast.Expr(call(write, load(present)))
        self.before: tuple[ast.stmt, ...] = (ast.Assign([store(present)], call(read)),)

    def guarded(self, graph_call: ast.stmt) -> ast.stmt:
        """Restore the state on any error, then raise the error again."""
        handler = ast.ExceptHandler(self._error, None, [self._undo, ast.Raise()])
        return ast.Try([graph_call], [handler], [], [])
