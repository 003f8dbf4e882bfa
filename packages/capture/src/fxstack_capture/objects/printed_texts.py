"""``Text``: a string that the program only prints, of which nobody looks at the content while tracing.

It is made when the graph has run, of the numbers and strings as they are then: none of them is guarded by its value.
Lives on the stacks of frames, and in what ``print`` is to write.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import torch

from fxstack_capture.trace.records import DeferredLocal
from fxstack_capture.trace.state import Trace

# Limits: only text that an argument or an f-string passes to print in one expression is deferred. Text that
# goes first into a variable, %, str.format, str(), a logger, a key, a conditional expression or another
# function is not deferred; neither are strings that are attributes, items, globals or arguments of a module's
# forward, nor formats that fail for some numbers of a type (:c) or read the locale (:n).

NUMBERS: Final = (torch.SymInt, torch.SymFloat)

_ALIKE: Final = re.compile(r"(.?[<>=^])?[-+ ]?z?#?0?\d{0,4}[,_]?(\.\d{1,3})?[bdoxXeEfFgG%]?")
"""Format specifications that are right or wrong for all numbers of a type (``c`` is not), and know no locale (``n`` does)."""

_EXAMPLES: Final = {torch.SymInt: 1, torch.SymFloat: 1.5, DeferredLocal: ""}


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """``{value!conversion:spec}``; ``value`` is a SymInt, a SymFloat, or ``DeferredLocal`` with a string that is guarded to be
    one.
    """

    value: Any
    conversion: str = ""
    spec: str = ""

    def converted(self, conversion: str) -> Piece | None:
        """With a conversion (``s``, ``r``, ``a``); None where there is one already."""
        return None if self.conversion or self.spec else Piece(self.value, conversion)

    def formatted(self, spec: object) -> Piece | None:
        """With a specification; None where that is an error, or may be one for other values."""
        if self.spec or type(spec) is not str or _ALIKE.fullmatch(spec) is None:
            return None
        example = "" if self.conversion else _EXAMPLES[type(self.value)]
        try:
            format(example, spec)
        except ValueError:
            return None
        return Piece(self.value, self.conversion, spec)

    def settle(self, trace: Trace) -> str:
        """The text as it is now; its value is guarded."""
        value = trace.torch.specialize(self.value)
        if type(value) is DeferredLocal:
            value = trace.objects.enter(value.value, value.source)
        convert = {"": None, "s": str, "r": repr, "a": ascii}[self.conversion]
        return format(convert(value) if convert else value, self.spec)


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Strings and pieces, one after the other."""

    parts: tuple[str | Piece, ...]

    def settle(self, trace: Trace) -> str:
        """The text as a constant; all that is in it is guarded."""
        return "".join(p if isinstance(p, str) else p.settle(trace) for p in self.parts)

    @property
    def piece(self) -> Piece | None:
        """Its only part, if that is a piece."""
        first = self.parts[0]
        return first if len(self.parts) == 1 and isinstance(first, Piece) else None


def joined(parts: list[Any]) -> Any:
    """The concatenation of strings and texts."""
    if not any(type(part) is Text for part in parts):
        return "".join(parts)
    flat: list[Any] = []
    for part in parts:
        flat += part.parts if type(part) is Text else (part,)
    return Text(tuple(flat))


def concrete(trace: Trace, value: object) -> Any:
    """A value; a ``Text`` as the string that it is now."""
    return value.settle(trace) if type(value) is Text else value
