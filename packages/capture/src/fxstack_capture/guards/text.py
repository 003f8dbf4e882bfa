"""Short texts of values and of sources for messages."""

from __future__ import annotations

import math
import re
import reprlib
from typing import Any, Final

import torch

_HIDDEN: Final = re.compile(r"(?<![\w\])])\.[a-z]*\d*(?!\w)")
"""Matches names of arguments that have no name in the program: arguments of resume functions, and the
iterable of a comprehension.
"""
_ITERATED: Final = re.compile(rf"next\({_HIDDEN.pattern}\)")
_UNNAMED: Final = "a value of an expression or loop"
_OF_MODULE: Final = re.compile(r"globals of ([\w.]+)(\['(\w+)'\])?")
_OF_NAMESPACE: Final = re.compile(r"\bglobals\(\)\['(\w+)'\]|<cell (\w+)>\.cell_contents|\b__main__\.")


class Described:
    """An object that stands for another, whose short text it has."""

    __slots__ = ("text",)
    text: str


class _Short(reprlib.Repr):
    """Shortens the texts of objects, and describes tensors by their properties."""

    def repr_instance(self, x: Any, level: int) -> str:
        """Return the text of an object. The elements of a tensor are slow to read, and on a GPU wait for its work."""
        if isinstance(x, Described):
            return x.text
        if not isinstance(x, torch.Tensor):
            return super().repr_instance(x, level)
        return f"{type(x).__name__}({list(x.shape)}, {x.dtype}, device='{x.device}')"


_shortened: Final = _Short().repr


def short(value: object) -> str:
    """Return a shortened ``repr``; for a class, its qualified name. Never raises, even if ``__repr__`` does."""
    if isinstance(value, type):
        return class_name(value)
    try:
        return _shortened(value)
    except Exception:
        return f"<{type(value).__name__} object>"


def class_name(cls: type) -> str:
    """Return the qualified name of a class."""
    # A class may have no module (`type(...)` in code without ``__name__``), or its ``__module__`` may raise.
    try:
        module = cls.__module__
    except Exception:
        return cls.__qualname__
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def literal(value: object) -> str:
    """Return the Python expression of a constant or of a class."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if isinstance(value, type):
        return class_name(value).removeprefix("__main__.")
    return repr(value)


def readable_name(name: str) -> str:
    """Return the name of a source for a message.

    An argument that has no name in the program is described by words, for example "the next item of a value
    of an expression or loop".
    """
    return _HIDDEN.sub(_UNNAMED, _ITERATED.sub(f"the next item of {_UNNAMED}", name))


def python_name(name: str) -> str:
    """Return the name of a source as the program writes it.

    Arguments without a name in the program are called ``value_0`` or ``value_inner3``.
    """
    name = _OF_MODULE.sub(lambda m: f"{m[1]}.{m[3]}" if m[3] else f"vars({m[1]})", name)
    name = _OF_NAMESPACE.sub(lambda m: m[1] or m[2] or "", name)
    return _HIDDEN.sub(lambda m: f"value_{m[0][1:]}", name)
