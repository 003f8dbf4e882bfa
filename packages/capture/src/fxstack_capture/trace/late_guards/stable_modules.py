"""Stable modules, which outlive compiled code: torch, NumPy and the standard library.

The functions, classes and submodules of a stable module are guarded directly (``Pinned``), not by the path to
them. The names that the trace read from a namespace, a class or a function are a root of the guard tree. The root
costs a check almost nothing while none of the names is rebound (``native/guard_tree/root_versions.c``).
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
    """Whether ``name``, for example ``"torch.nn"``, is a stable module or one of its submodules.

    False for a non-string.
    """
    return isinstance(name, str) and name.partition(".")[0] in _STABLE_ROOTS


def is_stable(definition: object) -> bool:
    """Whether a stable module defines ``definition``, a function, class or module.

    The program may have put definitions of its own into a stable module; these are not stable.
    """
    if isinstance(definition, ModuleType):
        return is_stable_module(definition.__dict__.get("__name__"))
    if isinstance(definition, type):
        return is_stable_module(definition.__dict__.get("__module__", "builtins"))
    return is_stable_module(getattr(definition, "__module__", None))


def label_of(definition: object) -> str:
    """Return the name of a pinned definition in messages: its ``__qualname__`` or ``__name__``, or the name of its
    class.
    """
    name = getattr(definition, "__qualname__", None) or getattr(definition, "__name__", None)
    return name if isinstance(name, str) else type(definition).__name__
