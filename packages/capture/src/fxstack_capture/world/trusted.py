"""Which modules are taken as constant: nobody rebinds their functions, classes and submodules while
a program runs.

Reads of functions, classes and modules out of trusted namespaces and classes are not guarded.
Everything else in them (flags, numbers, dictionaries of hooks) is guarded like the user's own.
"""

from __future__ import annotations

import sys

from fxstack_capture.class_flags import is_immutable

_TRUSTED_ROOTS = frozenset(sys.stdlib_module_names) - {"__main__"} | {
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


def is_trusted_module(name: object) -> bool:
    return isinstance(name, str) and name.partition(".")[0] in _TRUSTED_ROOTS


def is_fixed_class(cls: type) -> bool:
    """True for classes whose attributes are not guarded: C types that cannot be changed, and
    trusted modules' classes.
    """
    if is_immutable(cls):
        return True
    return is_trusted_module(cls.__dict__.get("__module__"))
