"""torch's state after a graph that raised: as it was before, since the program's ``with`` blocks end with the error.

A graph sets the state by calls of its own (``torch.no_grad()`` is one at each end), of which an error skips the second.
"""

from __future__ import annotations

import ast

from fxstack_capture.emit.builder import Builder, call, load, store
from fxstack_capture.torch_side.global_state import state


class Restore:
    """``before`` the call of the graph, and around it (``guarded``)."""

    def __init__(self, builder: Builder) -> None:
        present = builder.fresh("torch_state")
        read = builder.constant(state.present, "read_torch_state")
        write = builder.constant(state.put_back, "put_back_torch_state")
        self._error = builder.constant(BaseException, "BaseException")
        self._undo = ast.Expr(call(write, load(present)))
        self.before: tuple[ast.stmt, ...] = (ast.Assign([store(present)], call(read)),)

    def guarded(self, graph_call: ast.stmt) -> ast.stmt:
        """Any error goes on as it is, when the state is back."""
        handler = ast.ExceptHandler(self._error, None, [self._undo, ast.Raise()])
        return ast.Try([graph_call], [handler], [], [])
