"""Detect replaced builtins and replaced parts of torch. As long as one is replaced, nothing is compiled.

The detection covers functions and classes of ``builtins`` that the compiler calls, methods of tensors that
graphs contain, and ``weakref.ref``, which torch uses to store its fake tensors.
"""

from __future__ import annotations

import builtins
import weakref
from _weakref import ReferenceType

from fxstack_capture.driver.errors import TracingWarning
from fxstack_capture.torch_side.global_state.torch_names import replaced_method
from fxstack_interchange.user_warnings import warn_user

# Limits: a replaced builtin causes no warning, and fullgraph=True does not raise for it.

_TABLE = vars(builtins)
_NAMES = """
    abs all any bool callable delattr dict enumerate filter float frozenset getattr hasattr hash id int isinstance
    issubclass iter len list map max min next object property range repr reversed set setattr slice sorted str sum super
    tuple type vars zip
"""
_NEEDED = tuple((name, _TABLE[name]) for name in _NAMES.split())
"""The builtins that the compiler calls. The values are those at the import of this package."""
_REFERENCE = ReferenceType  # weakref.ref itself may have been replaced by another package before
_WARNED: set[str] = set()


def are_replaced() -> bool:
    """Whether the program has replaced a builtin that the compiler calls. ``FrameCompiler.callback`` asks
    this first.

    This function calls nothing that the program could have replaced.
    """
    for name, value in _NEEDED:  # noqa: SIM110 - the program may have replaced any()
        if _TABLE.get(name) is not value:
            return True
    return False


def replaced_in_libraries() -> str | None:
    """Return the name of a replaced function or class, for example "torch.Tensor.add", or None.

    Only ``weakref.ref`` and methods of tensors are compared. The program or a package may have replaced them.
    """
    if weakref.ref is not _REFERENCE:
        return "weakref.ref"
    method = replaced_method()
    return None if method is None else f"torch.Tensor.{method}"


def warn_once(name: str) -> None:
    """Warn that functions stay uncompiled as long as ``name`` is replaced. Each name causes one warning in a
    process.
    """
    if name in _WARNED:
        return
    _WARNED.add(name)
    warn_user(
        f"nothing is compiled while {name} is replaced: functions that are not compiled yet run in plain"
        " Python. fix: restore the original before the first call of compiled code, and replace its callers instead.",
        TracingWarning,
    )
