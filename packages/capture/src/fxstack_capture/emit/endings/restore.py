"""Restore torch's state after a graph that raised, since the program's ``with`` blocks end with the error.

A graph sets the state by calls. ``torch.no_grad()`` is one call at each end, and an error skips the second
call.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial

from fxstack_capture.emit.builder import Builder, call, load, store
from fxstack_capture.emit.endings.graph_errors import GraphErrors
from fxstack_capture.torch_side.global_state import state


def restored(builder: Builder, variables: Sequence[state.Variable]) -> GraphErrors:
    """Restore the state that the graph sets (``variables``) on any error, then raise the error again."""
    present = builder.fresh("torch_state")
    read = builder.constant(partial(state.present, variables), "read_torch_state")
    write = builder.constant(partial(state.put_back, variables=variables), "put_back_torch_state")
    undo = ast.Expr(call(write, load(present)))
    handler = ast.ExceptHandler(builder.constant(BaseException, "BaseException"), None, [undo, ast.Raise()])
    return GraphErrors(handler, (ast.Assign([store(present)], call(read)),))
