"""Code that is never compiled as a frame of its own: the compiler, and libraries without tensor operations.

The policy applies to frames that the hook gets while plain code runs. If a compiled function calls such code,
the interpreter may still inline it.
"""

from __future__ import annotations

import collections
import sys
from importlib.util import find_spec
from pathlib import Path
from traceback import walk_stack
from types import CodeType, FunctionType

import numpy as np
import sympy
import torch

from fxstack_capture import native, torch_compat
from fxstack_capture.objects.instances import finalized_class
from fxstack_capture.standard_library import is_of_standard_library
from fxstack_capture.torch_compat import get_current_dispatch_mode_stack as _get_current_dispatch_mode_stack
from fxstack_capture.torch_compat import get_dispatch_mode_pre_dispatch as _get_dispatch_mode_pre_dispatch
from fxstack_capture.torch_side.subclasses import suspended_modes
from fxstack_capture.torch_side.subclasses.suspended_modes import can_be_followed
from fxstack_capture.torch_side.subclasses.wrapper_classes import are_active
from fxstack_interchange.user_warnings import OWN_PACKAGES

_OWN = str(Path(__file__).parents[2]) + "/"


def _directory_of(package: str) -> tuple[str, ...]:
    """Return the folders of an installed package, each with a final slash. () if the package is not
    installed.
    """
    spec = find_spec(package)
    folders = None if spec is None else spec.submodule_search_locations
    return tuple(f"{folder}/" for folder in folders or ())


_TRITON = _directory_of("triton")
_TORCH = str(Path(torch.__file__).parent) + "/"
_NUMPY = str(Path(np.__file__).parent) + "/"
_SYMPY = str(Path(sympy.__file__).parent) + "/"
# The audit hook of filelock runs at arbitrary points of the program.
_AUDITING = _directory_of("filelock")
# These parts of torch are programs over tensors, written like programs of users.
_TORCH_PROGRAMS = tuple(_TORCH + part for part in ("nn/", "optim/", "distributions/", "ao/", "functional.py"))
_NEVER = tuple(_TORCH + part for part in ("nn/parallel/", "nn/utils/"))

# File names of code that comes from no file and is not the program's. Code from a prompt, a notebook or
# ``exec`` (``<stdin>``) belongs to the program.
_GENERATED = ("<frozen ", "<fxstack", "<signature>", "<eval_with_key>", "<__array_function__")

# The argument of a comprehension's frame is an iterator that the caller has created. Only the caller knows
# the iterable.
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})


# In a region that runs in plain Python, torch calls these methods for every operator.
_OVERRIDES = frozenset({"__torch_function__", "__torch_dispatch__"})

# ``collections.namedtuple`` generates the ``__new__`` of its classes.
_OF_NAMED_TUPLES = collections.namedtuple("_", "item").__new__.__code__.co_names  # noqa: PYI024


def is_foreign(code: CodeType) -> bool:
    """Whether frames of this code always run in plain Python. ``FrameCompiler.callback`` asks for each new
    frame.
    """
    if code.co_name in _COMPREHENSIONS or code.co_name in _OVERRIDES:
        return True
    file = code.co_filename
    if file.startswith((_OWN, *_GENERATED, *_AUDITING)) or code.co_names == _OF_NAMED_TUPLES:
        return True
    if file.startswith(_TORCH):
        return not file.startswith(_TORCH_PROGRAMS) or file.startswith(_NEVER)
    if file.startswith((_NUMPY, _SYMPY)):
        return True
    if file.startswith(_TRITON):  # this includes Triton's interpreter, which runs kernels in Python
        return True
    return is_of_standard_library(file)


def is_own(function: FunctionType) -> bool:
    """Whether one of the compiler's packages defines this function.

    A lazily compiled backward calls the packages below capture in the middle of the user's program.
    """
    name = function.__globals__.get("__name__")
    return type(name) is str and name.partition(".")[0] in OWN_PACKAGES


_IS_OFF = torch_compat.dispatch_tls_is_dispatch_key_excluded
_FUNCTIONALIZE = torch_compat.DispatchKey.Functionalize


def has_foreign_modes() -> bool:
    """Whether modes or transforms of the program intercept torch calls in a way that tracing cannot follow.

    This includes code inside of a ``__torch_dispatch__``, where the higher dispatch layers are off.
    """
    if torch_compat.len_torch_dispatch_stack() or are_active() or _IS_OFF(_FUNCTIONALIZE):
        return True
    if is_traced_by_others():
        return True
    return not all(map(can_be_followed, suspended_modes.present()))


def foreign_state(arguments: dict[str, object]) -> str | None:
    """Return why the program's current state keeps a frame from being compiled, or None if nothing does.

    The reason is a clause such as "it is called under saved-tensor hooks that were entered inside".

    Saved-tensor hooks that the program enters inside of a compiled call expect the tensors that eager saves.
    For example, a checkpoint replaces the saved tensors by those of a recomputation in eager, by position. A
    graph saves other tensors.

    The ``arguments`` of a resume function may be the only references to objects. Their finalizers run when
    the frame drops the objects, and the frame may read the side effects of the finalizers.
    """
    if has_foreign_modes():
        return "it is called under a mode or a transform that sees torch's calls"
    if native.hooks() == "inside":
        return "it is called under saved-tensor hooks that were entered inside"
    finalized = finalized_class(arguments)
    return None if finalized is None else f"it may drop a {finalized.__qualname__}, which has a __del__"


def is_traced_by_others() -> bool:
    """Whether another tracer records the operators now.

    Such tracers are TorchScript, FX, ``make_fx``, ``torch.export`` and fake tensor modes.
    """
    if torch_compat.get_tracing_state() is not None or is_fx_tracing():
        return True
    modes = (*_get_current_dispatch_mode_stack(), *_modes_before_dispatch())
    return bool(modes) and all(getattr(mode, "is_infra_mode", bool)() for mode in modes)


def is_fx_tracing() -> bool:
    """Whether FX traces in this thread. FX's own flag may be global to all threads."""
    if not torch_compat.may_trace_by_fx():
        return False
    return any(frame.f_code is _FX_TRACE for frame, _ in walk_stack(sys._getframe()))


def _modes_before_dispatch() -> list[object]:
    """Return the modes of ``make_fx(pre_dispatch=True)`` and ``torch.export``. They have a stack of their
    own.
    """
    modes = map(_get_dispatch_mode_pre_dispatch, _KEYS_BEFORE_DISPATCH)
    return [mode for mode in modes if mode is not None]


_KEYS_BEFORE_DISPATCH = (
    torch_compat.TorchDispatchModeKey.PROXY,
    torch_compat.TorchDispatchModeKey.FUNCTIONAL,
)
_FX_TRACE = torch.fx.Tracer.trace.__code__
"""The code of ``torch.fx.Tracer.trace``. It is on the stack while FX traces."""


def is_module_call(code: CodeType) -> bool:
    """Whether ``code`` is ``nn.Module.__call__``.

    All modules share this code object. Therefore submodules are compiled by their ``forward``.
    """
    return code in _MODULE_CALLS


def forward_of(root: object, code: CodeType) -> CodeType:
    """Return the code that messages name. For a call of a module, it is the ``forward`` of ``root``;
    otherwise ``code``.
    """
    if root is None or not is_module_call(code):
        return code
    forward: CodeType = getattr(getattr(type(root), "forward", None), "__code__", code)
    return forward


_MODULE_CALLS = frozenset({torch_compat.wrapped_module_call.__code__, torch_compat.module_call.__code__})
"""The code objects of the two functions that a call of a module runs before ``forward``."""
