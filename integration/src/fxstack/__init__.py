"""fxstack: a replacement of torch.compile. ``fxstack.compile(model)``, and nothing else changes.

The package composes the four stages ``fxstack_capture``, ``fxstack_functionalize``, ``fxstack_partition`` and
``fxstack_inductor``; it alone may import all of them. ``settings`` checks options, ``pipeline`` connects the
stages, ``disk`` stores compiled programs, ``refusals`` and ``safe`` fall back to eager, ``debug`` shows what was
compiled. Begin with ``api``.
"""

import sys

from fxstack.api import compile, compile_log, optimize, repro
from fxstack.artifacts import CacheInfo, load_cache_artifacts, save_cache_artifacts
from fxstack.backends import (
    get_default_backend,
    list_backends,
    lookup_backend,
    register_backend,
    set_default_backend,
)
from fxstack.debug import follow as _follow
from fxstack.dropin.installing import install, is_installed, uninstall
from fxstack.log import CompileLog, StageTime
from fxstack.settings import list_mode_options, list_options
from fxstack.torch_options import OptionError
from fxstack_capture import (
    BackendError,
    CaptureOptions,
    OptimizedModule,
    RecompileError,
    ShapeContractError,
    ShapeProfile,
    SkipFrame,
    Uncompiled,
    Unsupported,
    WrongResultError,
    allow_in_graph,
    assume_constant_result,
    comptime,
    disable,
    disallow_in_graph,
    error_on_graph_break,
    explain,
    export,
    forbid_in_graph,
    graph_break,
    is_compiling,
    keep_portable_guards_unsafe,
    keep_tensor_guards_unsafe,
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    nonstrict_trace,
    patch_options,
    profile_of,
    reset,
    run,
    set_stance,
    skip,
    skip_all_guards_unsafe,
    skip_frame,
    skip_guard_on_all_nn_modules_unsafe,
    skip_guard_on_globals_unsafe,
    skip_guard_on_inbuilt_nn_modules_unsafe,
    substitute_in_graph,
    wrap_numpy,
)
from fxstack_capture import patch_options as options

__all__ = [
    "BackendError",
    "CacheInfo",
    "CaptureOptions",
    "CompileLog",
    "OptimizedModule",
    "OptionError",
    "RecompileError",
    "ShapeContractError",
    "ShapeProfile",
    "SkipFrame",
    "StageTime",
    "Uncompiled",
    "Unsupported",
    "WrongResultError",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "compile_log",
    "comptime",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "explain",
    "export",
    "forbid_in_graph",
    "get_default_backend",
    "graph_break",
    "install",
    "is_compiling",
    "is_installed",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "list_mode_options",
    "list_options",
    "load_cache_artifacts",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nonstrict_trace",
    "optimize",
    "options",
    "patch_options",
    "profile_of",
    "register_backend",
    "repro",
    "reset",
    "run",
    "save_cache_artifacts",
    "set_default_backend",
    "set_stance",
    "skip",
    "skip_all_guards_unsafe",
    "skip_frame",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
    "uninstall",
    "wrap_numpy",
]

_follow()

# ``FXSTACK=1`` and a program that imports fxstack before torch: the start of Python waits for this module.
if (startup := sys.modules.get("fxstack_startup")) is not None:
    startup.installed()
