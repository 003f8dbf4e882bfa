"""fxstack: a from-scratch replacement of torch.compile.

``fxstack.compile(model)`` and nothing else changes.
"""

from fxstack.api import compile, compile_log, optimize
from fxstack.backends import list_backends
from fxstack.log import CompileLog, StageTime
from fxstack.scripts import repro
from fxstack_capture import (
    BackendError,
    CaptureOptions,
    RecompileError,
    ShapeContractError,
    ShapeProfile,
    SkipFrame,
    Unsupported,
    WrongResultError,
    allow_in_graph,
    assume_constant_result,
    comptime,
    disable,
    disallow_in_graph,
    explain,
    export,
    forbid_in_graph,
    graph_break,
    is_compiling,
    mark_dynamic,
    mark_static,
    mark_unbacked,
    maybe_mark_dynamic,
    patch_options,
    profile_of,
    reset,
    run,
    set_stance,
    skip,
)
from fxstack_capture import patch_options as options

__all__ = [
    "BackendError",
    "CaptureOptions",
    "CompileLog",
    "RecompileError",
    "ShapeContractError",
    "ShapeProfile",
    "SkipFrame",
    "StageTime",
    "Unsupported",
    "WrongResultError",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "compile_log",
    "comptime",
    "disable",
    "disallow_in_graph",
    "explain",
    "export",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "optimize",
    "options",
    "patch_options",
    "profile_of",
    "repro",
    "reset",
    "run",
    "set_stance",
    "skip",
]
