"""Short texts of values for messages.

The functions never raise, even if a ``__repr__`` of the program raises.
"""

from __future__ import annotations

import reprlib


def short(value: object) -> str:
    """Return a shortened ``repr``. A class is shown by its qualified name."""
    if isinstance(value, type):
        return class_name(value)
    try:
        return reprlib.repr(value)
    except Exception:
        return f"<{type(value).__name__} object>"


def class_name(cls: type) -> str:
    """Return the qualified name of a class."""
    # A class may have no module (`type(...)` in code without ``__name__``), or a getter that raises.
    try:
        module = cls.__module__
    except Exception:
        return cls.__qualname__
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"
