"""Functions and classes of ``builtins`` that the compiler itself calls, and methods of tensors that graphs are made of: while a
program replaces one, nothing is compiled.
"""

from __future__ import annotations

import builtins

from fxstack_capture.torch_side.names import replaced_method

_TABLE = vars(builtins)
_NEEDED = tuple(
    (name, _TABLE[name])
    for name in (
        *(
            "abs",
            "all",
            "any",
            "callable",
            "delattr",
            "dict",
            "enumerate",
            "filter",
            "frozenset",
            "getattr",
        ),
        *(
            "hasattr",
            "hash",
            "id",
            "int",
            "isinstance",
            "issubclass",
            "iter",
            "len",
            "list",
            "map",
            "max",
            "min",
        ),
        *(
            "next",
            "object",
            "range",
            "repr",
            "reversed",
            "set",
            "setattr",
            "slice",
            "sorted",
            "str",
            "sum",
            "super",
        ),
        *("tuple", "type", "vars", "zip", "property", "bool", "float"),
    )
)


def are_replaced() -> bool:
    """Calls nothing that a program could have replaced."""
    for name, value in _NEEDED:
        if _TABLE.get(name) is not value:
            return True
    return replaced_method() is not None
