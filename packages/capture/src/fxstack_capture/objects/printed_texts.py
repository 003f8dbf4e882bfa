"""``Text``: a string that the program only prints. The trace does not read the content of the string.

The replacement code formats the string after the graph has run, from the numbers and strings of the call.
Therefore no number or string in a ``Text`` is guarded by value. A ``Text`` is on the stack of a frame, or in
the arguments of a deferred ``print``. The options may name functions as reorderable. For them, a text that
contains tensors may also be in a local variable.
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

# Limits: the text of numbers is deferred only if one expression makes the text and passes it to print, as an
# argument or in an f-string. The text is not deferred if it is first assigned to a variable. Nor is it
# deferred if it passes through %, str.format, str(), a logger, a key, a conditional expression or another
# function. Strings that are attributes, items, globals or arguments of a module's forward are not deferred.
# Two format specifications are not deferred: :c fails for some numbers, :n reads the locale.

NUMBERS: Final = (torch.SymInt, torch.SymFloat)
"""Types of symbolic numbers whose text can be deferred."""

_ALIKE: Final = re.compile(r"(.?[<>=^])?[-+ ]?z?#?0?\d{0,4}[,_]?(\.\d{1,3})?[bdoxXeEfFgG%]?")
"""Format specifications without locale that are valid for all numbers of a type or for none.

``c`` is not among them, because it is valid for some integers only. ``n`` reads the locale.
"""


@dataclass(frozen=True, slots=True, eq=False)
class LaterString:
    """The result of a call ``function(*args, **kwargs)`` with tensors as arguments, such as ``str.format``.

    The result is a string. The replacement code makes the call after the graph has run.
    """

    function: Callable[..., str]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_EXAMPLES: Final = {torch.SymInt: 1, torch.SymFloat: 1.5, DeferredLocal: "", LaterString: ""}
"""Maps each type of deferred value to a sample value with the same ``__format__``."""


def _example(value: object) -> object:
    """Return a sample value with the same ``__format__`` as ``value``. Format specifications are tried on the
    sample.

    A tensor of one element formats like its number. A tensor of more elements has no sample; the result is an
    object that rejects specifications.
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
    """A replacement field ``{value!conversion:spec}`` of a text.

    ``value`` is a SymInt, a SymFloat, a tensor, a ``LaterString`` or a ``DeferredLocal``. The guards demand
    that a ``DeferredLocal`` is a string.
    """

    value: Any
    conversion: str = ""
    """The conversion: "", "s", "r" or "a"."""
    spec: str = ""
    """The format specification. ``format`` accepts it for every value of the type."""

    def converted(self, conversion: str) -> Piece | None:
        """Return the piece with a conversion (``s``, ``r``, ``a``).

        Return None if the piece already has a conversion or a specification. The text cannot be deferred
        then.
        """
        return None if self.conversion or self.spec else Piece(self.value, conversion)

    def formatted(self, spec: object) -> Piece | None:
        """Return the piece with a format specification, for ``format`` and for f-strings.

        Return None if the specification is an error for this value, or may be an error for other values.
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
        """Return the current text as a constant, and guard the value.

        Called when the program does more with the text than print it. Raises GraphBreak for the text of a
        tensor.
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
    """A text: a sequence of constant strings and pieces. An f-string or ``str`` of a dynamic number makes a
    ``Text``.
    """

    parts: tuple[str | Piece, ...]
    """Constant strings and replacement fields, in order."""

    def settle(self, trace: Trace) -> str:
        """Return the current text as a constant, and guard the values in it. Called like ``Piece.settle``."""
        return "".join(p if isinstance(p, str) else p.settle(trace) for p in self.parts)

    @property
    def piece(self) -> Piece | None:
        """The piece, if the text consists of one piece only. Otherwise None."""
        first = self.parts[0]
        return first if len(self.parts) == 1 and isinstance(first, Piece) else None


def joined(parts: list[Any]) -> Any:
    """Return the concatenation of the parts of an f-string: strings and texts.

    The result is a ``str`` if no part is a ``Text``.
    """
    if not any(type(part) is Text for part in parts):
        return "".join(parts)
    flat: list[Any] = []
    for part in parts:
        flat += part.parts if type(part) is Text else (part,)
    return Text(tuple(flat))


def concrete(trace: Trace, value: object) -> Any:
    """Return ``value``. For a ``Text``, guard its values and return its current string.

    Called before a value leaves the code that can defer texts.
    """
    return value.settle(trace) if type(value) is Text else value
