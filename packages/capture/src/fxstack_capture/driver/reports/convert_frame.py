"""Show replacement code to the hooks that the program has given to torch's ``register_bytecode_hook``.

depyf and other tools search the stack for a function ``_compile`` in a file ``convert_frame.py``, with a
variable ``frame``. Hence the names in this module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any, Final

from fxstack_capture.driver.errors import TracingWarning
from fxstack_capture.emit.frame import Emitted
from fxstack_capture.guards.accesses import RealFrame
from fxstack_interchange.user_warnings import warn_user

MODULE: Final = "torch._dynamo.convert_frame"


@dataclass(frozen=True, slots=True)
class _Frame:
    """The attributes of a frame object that hooks read. It describes the replaced frame, which has not
    started.
    """

    f_code: CodeType
    """The code that is replaced."""
    f_globals: Mapping[str, Any]
    """The globals of the function."""
    f_locals: Mapping[str, Any]
    """The arguments by name."""


def through_hooks(emitted: Emitted, code: CodeType, frame: RealFrame) -> Emitted:
    """Return ``emitted`` with the code that the hooks return in place of its own. The pass ``assemble`` calls
    this.

    ``code`` is the code that is replaced. If there are no hooks, return ``emitted``.
    """
    hooks = getattr(sys.modules.get(MODULE), "_bytecode_hooks", None)
    if not hooks:
        return emitted
    seen = _Frame(code, frame.function.__globals__, frame.arguments)
    hooked = _compile(code, emitted.code, list(hooks.values()), frame=seen)
    if hooked is emitted.code:
        return emitted
    if emitted.inputs is not None and emitted.inputs.name not in hooked.co_varnames[_arguments(code) :][:1]:
        warn_user(
            f"{code.co_qualname}: a bytecode hook returned code that fxstack cannot run: the first variable after the"
            f" arguments must be {emitted.inputs.name}, which holds the inputs of the graph.",
            TracingWarning,
        )
        return emitted
    return replace(emitted, code=hooked)


def _compile(
    code: CodeType,
    replacement: CodeType,
    hooks: list[Callable[[CodeType, CodeType], CodeType | None]],
    frame: _Frame,  # noqa: ARG001 - hooks look for it
) -> CodeType:
    """Return the code that the hooks make from ``replacement``.

    depyf searches for the name of this function and for its variable ``frame``.
    """
    for hook in hooks:
        replacement = hook(code, replacement) or replacement
    return replacement


def _arguments(code: CodeType) -> int:
    """Return how many variables of ``code`` are arguments, including ``*args`` and ``**kwargs``."""
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
