"""Stable modules: torch, NumPy and the standard library. They outlive compiled code.

A function, class or submodule of a stable module is guarded directly (``Pinned``), not by the path to it. The
names that the trace reads from one namespace, class or function form a root of the guard tree. As long as
none of these names is rebound, checking the root costs almost nothing
(``native/guard_tree/root_versions.c``).
"""

from __future__ import annotations

import sys
from types import ModuleType

_STABLE_ROOTS = frozenset(sys.stdlib_module_names) - {"__main__"} | {
    "torch",
    "numpy",
    "functorch",
    "torchgen",
    "sympy",
    "mpmath",
    "typing_extensions",
    "fxstack_capture",
    "fxstack_interchange",
    "fxstack",
}
"""Top-level packages whose definitions the program is not expected to rebind."""


def is_stable_module(name: object) -> bool:
    """Whether ``name``, for example ``"torch.nn"``, is the name of a stable module or of its submodule.

    False if ``name`` is not a string.
    """
    return isinstance(name, str) and name.partition(".")[0] in _STABLE_ROOTS


def is_stable(definition: object) -> bool:
    """Whether a stable module defines ``definition``, a function, class or module.

    The program may put its own definitions into a stable module. These are not stable.
    """
    if isinstance(definition, ModuleType):
        return is_stable_module(definition.__dict__.get("__name__"))
    if isinstance(definition, type):
        return is_stable_module(definition.__dict__.get("__module__", "builtins"))
    return is_stable_module(getattr(definition, "__module__", None))


def label_of(definition: object) -> str:
    """Return the name of a pinned definition in messages.

    This is its ``__qualname__`` or ``__name__``, or else the name of its class.
    """
    name = getattr(definition, "__qualname__", None) or getattr(definition, "__name__", None)
    return name if isinstance(name, str) else type(definition).__name__
