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
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )
