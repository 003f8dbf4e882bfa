"""Which modules outlive compiled code: torch, NumPy and the standard library.

Their functions, classes and submodules are guarded by themselves (``Pinned``), not by the way to them: what was read of
a namespace, a class or a function is a root of the guard tree, which costs a check next to nothing as long as nobody
rebinds anything there (``native/root_versions.c``).
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


def is_stable_module(name: object) -> bool:
    return isinstance(name, str) and name.partition(".")[0] in _STABLE_ROOTS


def is_stable(definition: object) -> bool:
    """Whether a function, class or module belongs to such a module, rather than having been put there by the program."""
    if isinstance(definition, ModuleType):
        return is_stable_module(definition.__dict__.get("__name__"))
    if isinstance(definition, type):
        return is_stable_module(definition.__dict__.get("__module__", "builtins"))
    return is_stable_module(getattr(definition, "__module__", None))


def label_of(definition: object) -> str:
    """What a pinned definition is called in messages."""
    name = getattr(definition, "__qualname__", None) or getattr(definition, "__name__", None)
    return name if isinstance(name, str) else type(definition).__name__
