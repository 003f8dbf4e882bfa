"""fxstack: a from-scratch replacement of torch.compile.

``fxstack.compile(model)`` and nothing else changes.
"""

from fxstack.api import compile, compile_log
from fxstack.backends import list_backends
from fxstack.log import CompileLog, StageTime
from fxstack_capture import disable, explain, graph_break, is_compiling, reset

__all__ = [
    "CompileLog",
    "StageTime",
    "compile",
    "compile_log",
    "disable",
    "explain",
    "graph_break",
    "is_compiling",
    "list_backends",
    "reset",
]
