"""Functions created from code objects: ``types.FunctionType(code, globals, ...)``."""

from __future__ import annotations

import types
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import plainly
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()


@RULES.rule(types.FunctionType)
def _function(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> types.FunctionType:
    """Create a function whose globals are the real namespace of a module.

    A namespace that the program created itself breaks the graph.
    """
    given = args[1] if len(args) > 1 else kwargs.get("globals")
    objects = trace.objects
    namespace = objects.original_of(given)
    if type(namespace) is dict and "__name__" not in namespace:
        raise graph_break("unsupported-call", "FunctionType with a namespace that is no module's")
    if len(args) > 1:
        args = (args[0], namespace, *args[2:])
    else:
        kwargs = {**kwargs, "globals": namespace}
    made: types.FunctionType = plainly(types.FunctionType, args, kwargs)
    objects.note_new(made)
    return made
