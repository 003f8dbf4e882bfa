"""fxstack: a from-scratch replacement of torch.compile.

``fxstack.compile(model)`` and nothing else changes.
"""

from fxstack.api import compile, compile_log
from fxstack.backends import list_backends
from fxstack.log import CompileLog, StageTime
from fxstack.scripts import repro
from fxstack_capture import (
    allow_in_graph,
    assume_constant_result,
    comptime,
    disable,
    disallow_in_graph,
    explain,
    forbid_in_graph,
    graph_break,
    is_compiling,
    mark_dynamic,
    mark_static,
    mark_unbacked,
    maybe_mark_dynamic,
    patch_options,
    reset,
    run,
    set_stance,
    skip,
)

__all__ = [
    "CompileLog",
    "StageTime",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "compile_log",
    "comptime",
    "disable",
    "disallow_in_graph",
    "explain",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "patch_options",
    "repro",
    "reset",
    "run",
    "set_stance",
    "skip",
]
