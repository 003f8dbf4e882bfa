"""``Text``: a string that the program only prints. The trace does not read the content of the string.

The replacement code formats the string after the graph has run, from the numbers and strings of that call.
Therefore no number or string in a ``Text`` is guarded by value. A ``Text`` is on the stack of a frame or in
the arguments of a deferred ``print``. A text that holds tensors, for functions that the options call reorderable,
may also be in a local variable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.trace.records import DeferredLocal
from fxstack_capture.trace.state import Trace

# Limits: text of numbers is deferred only if one expression passes the text to print, as an argument or an f-string.
# It is not deferred if it is first assigned to a variable, or passes through %, str.format, str(), a
# logger, a key, a conditional expression or another function. Strings that are attributes, items, globals or
# arguments of a module's forward are not deferred. Format specifications that fail for some numbers of a type
# (:c) or read the locale (:n) are not deferred.

NUMBERS: Final = (torch.SymInt, torch.SymFloat)
"""Types of symbolic numbers whose text can be deferred."""

_ALIKE: Final = re.compile(r"(.?[<>=^])?[-+ ]?z?#?0?\d{0,4}[,_]?(\.\d{1,3})?[bdoxXeEfFgG%]?")
"""Format specifications without locale that are valid for all numbers of a type or for none.

``c`` is valid for some integers only. ``n`` reads the locale.
"""


@dataclass(frozen=True, slots=True, eq=False)
class LaterString:
    """The string that a call ``function(*args, **kwargs)`` of tensors returns, such as ``str.format``.

    The replacement code makes the call after the graph has run.
    """

    function: Callable[..., str]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_EXAMPLES: Final = {torch.SymInt: 1, torch.SymFloat: 1.5, DeferredLocal: "", LaterString: ""}
"""Maps each type of deferred value to a sample with the same ``__format__``."""


def _example(value: object) -> object:
    """Return a sample with the same ``__format__`` as ``value``, on which a format specification is tried.

    A tensor of one element formats like its number.
    """
    if not isinstance(value, torch.Tensor):
        return _EXAMPLES[type(value)]
    if value.ndim or isinstance(value, torch.nn.Parameter):
        return object()
    if value.is_floating_point() or value.is_complex():
        return 1.5 if value.is_floating_point() else 1.5j
    return value.dtype is torch.bool or 1


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A replacement field ``{value!conversion:spec}``.

    ``value`` is a SymInt, a SymFloat, a tensor, a ``LaterString``, or a ``DeferredLocal`` whose value is guarded
    to be a string.
    """

    value: Any
    conversion: str = ""
    """The conversion: "", "s", "r" or "a"."""
    spec: str = ""
    """The format specification, which ``format`` accepts for every value of the type."""

    def converted(self, conversion: str) -> Piece | None:
        """Return the piece with a conversion (``s``, ``r``, ``a``).

        Return None if the piece has a conversion or a specification. Then the text cannot be deferred.
        """
        return None if self.conversion or self.spec else Piece(self.value, conversion)

    def formatted(self, spec: object) -> Piece | None:
        """Return the piece with a format specification, for ``format`` and for f-strings.

        Return None if the specification is an error, or may be an error for other values.
        """
        if self.spec or type(spec) is not str or _ALIKE.fullmatch(spec) is None:
            return None
        example = "" if self.conversion else _example(self.value)
        try:
            format(example, spec)
        except (TypeError, ValueError):
            return None
        return Piece(self.value, self.conversion, spec)

    def settle(self, trace: Trace) -> str:
        """Return the present text as a constant, and guard the value.

        Called when the program does more with the text than print it. Raises GraphBreak for the text of a tensor.
        """
        if isinstance(self.value, (torch.Tensor, LaterString)):
            raise graph_break("unsupported-call", "a use of the text of a tensor")
        value = trace.torch.specialize(self.value)
        if type(value) is DeferredLocal:
            value = trace.objects.enter(value.value, value.source)
        convert = {"": None, "s": str, "r": repr, "a": ascii}[self.conversion]
        return format(convert(value) if convert else value, self.spec)


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A sequence of strings and pieces, which an f-string or ``str`` of a dynamic number makes."""

    parts: tuple[str | Piece, ...]
    """Constant strings and replacement fields, in order."""

    def settle(self, trace: Trace) -> str:
        """Return the text as a constant, and guard the values in the text. Called as ``Piece.settle``."""
        return "".join(p if isinstance(p, str) else p.settle(trace) for p in self.parts)

    @property
    def piece(self) -> Piece | None:
        """The only part of the text if that part is a piece, else None."""
        first = self.parts[0]
        return first if len(self.parts) == 1 and isinstance(first, Piece) else None


def joined(parts: list[Any]) -> Any:
    """Return the concatenation of strings and texts, for the parts of an f-string.

    The result is a ``str`` if no part is a ``Text``.
    """
    if not any(type(part) is Text for part in parts):
        return "".join(parts)
    flat: list[Any] = []
    for part in parts:
        flat += part.parts if type(part) is Text else (part,)
    return Text(tuple(flat))


def concrete(trace: Trace, value: object) -> Any:
    """Return ``value``; a ``Text`` becomes its present string, with guards.

    Called before a value leaves the code that can defer texts.
    """
    return value.settle(trace) if type(value) is Text else value
