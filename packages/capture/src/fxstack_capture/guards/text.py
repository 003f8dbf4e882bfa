"""Short texts for values in messages; never fails, whatever a user's ``__repr__`` does."""

from __future__ import annotations

import reprlib


def short(value: object) -> str:
    """``repr``, shortened; classes by their qualified name."""
    if isinstance(value, type):
        return class_name(value)
    try:
        return reprlib.repr(value)
    except Exception:
        return f"<{type(value).__name__} object>"


def class_name(cls: type) -> str:
    """Its qualified name; a class may have no module (`type(...)` in code without ``__name__``), or a getter that raises."""
    try:
        module = cls.__module__
    except Exception:
        return cls.__qualname__
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"
