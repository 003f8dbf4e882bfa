"""Captures Python functions over tensors as guarded FX graphs.

``api`` has the functions that users call. ``driver`` compiles a frame. ``trace`` is the state of one attempt
to compile a frame. ``interpreter``, ``objects``, ``calls`` and ``torch_side`` work on this state. ``guards``
and ``emit`` convert the result of the trace into an entry of the frame hook (``native``). The package imports
``fxstack_interchange`` and no other stage. Begin with ``driver.compiler``.
"""

from __future__ import annotations

import sysconfig

from fxstack_capture.api import (
    BackendError,
    GuardError,
    ShapeContractError,
    ShapeProfile,
    SkipFrame,
    Unsupported,
    WrongResultError,
    capture,
    disable,
    explain,
    export,
    graph_break,
    is_compiling,
    optimize,
    profile_of,
    reset,
    skip,
    skip_frame,
)
from fxstack_capture.comptime import ComptimeContext, ComptimeVar, comptime
from fxstack_capture.driver.errors import ComptimeError, RecompileError
from fxstack_capture.driver.optimized_module import OptimizedModule
from fxstack_capture.driver.reports.uncompiled import Uncompiled
from fxstack_capture.guards.filtering import (
    keep_portable_guards_unsafe,
    keep_tensor_guards_unsafe,
    skip_all_guards_unsafe,
    skip_guard_on_all_nn_modules_unsafe,
    skip_guard_on_globals_unsafe,
    skip_guard_on_inbuilt_nn_modules_unsafe,
)
from fxstack_capture.marking import (
    allow_in_graph,
    assume_constant_result,
    disallow_in_graph,
    forbid_in_graph,
    nonstrict_trace,
    substitute_in_graph,
)
from fxstack_capture.numpy_side.wrapping import wrap_numpy
from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.marks import (
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
)
from fxstack_capture.stance import patch_options, run, set_stance
from fxstack_capture.trace.strictness import error_on_graph_break
from fxstack_capture.versions.instruction_sets import refuse_free_threading

refuse_free_threading(disabled=bool(sysconfig.get_config_var("Py_GIL_DISABLED")))

__all__ = [
    "BackendError",
    "CaptureOptions",
    "ComptimeContext",
    "ComptimeError",
    "ComptimeVar",
    "GuardError",
    "OptimizedModule",
    "RecompileError",
    "ShapeContractError",
    "ShapeProfile",
    "SkipFrame",
    "Uncompiled",
    "Unsupported",
    "WrongResultError",
    "allow_in_graph",
    "assume_constant_result",
    "capture",
    "comptime",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "explain",
    "export",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nonstrict_trace",
    "optimize",
    "patch_options",
    "profile_of",
    "reset",
    "run",
    "set_stance",
    "skip",
    "skip_all_guards_unsafe",
    "skip_frame",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
    "wrap_numpy",
]
