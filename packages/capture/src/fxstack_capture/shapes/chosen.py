"""Sizes and numbers that the program chose to be symbolic by where they are found, or by their value.

An entry of ``dynamic_sources`` or ``unbacked_sources`` names a source in torch's words (``L['x']``, ``G['scale']``), as a text or
as a regular expression that matches its beginning, or is the name that our messages show (``x``). ``:N`` at its end stands
for dimension N alone. The options and the settings of the same names in ``torch.compiler.config`` (with their environment
variables) are both heeded.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch.compiler.config

from fxstack_capture import sources as s
from fxstack_capture.options import CaptureOptions
from fxstack_capture.sources import Source

_WITH_DIMENSION: Final = re.compile(r"(.+):(\d+)")
_WHITESPACE: Final = re.compile(r"\s")

Entry = tuple[str, int | None]
"""A pattern, and the dimension that it is about; None for all."""


@functools.lru_cache(maxsize=64)
def _entries(text: str) -> tuple[Entry, ...]:
    found: list[Entry] = []
    for entry in filter(None, _WHITESPACE.sub("", text).split(",")):
        match = _WITH_DIMENSION.fullmatch(entry)
        found.append((match[1], int(match[2])) if match else (entry, None))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Choices:
    """Those of one trace."""

    dynamic: tuple[Entry, ...] = ()
    unbacked: tuple[Entry, ...] = ()
    values: frozenset[str] = frozenset()
    parameters: Mapping[Source, Source] = field(default_factory=dict)
    """The names that the program has for arguments, where the frame has others: those of ``forward`` in a call of a module."""

    def is_dynamic(self, source: Source, dim: int, size: int) -> bool:
        """Whether a size is chosen, by where it is found or by its value."""
        return str(size) in self.values or self.is_named_dynamic(source, dim)

    def is_named_dynamic(self, source: Source, dim: int) -> bool:
        return bool(self.dynamic) and self._is_listed(self.dynamic, source, dim)

    def is_unbacked(self, source: Source, dim: int) -> bool:
        """Whether a size is one that nobody may look at."""
        return bool(self.unbacked) and self._is_listed(self.unbacked, source, dim)

    def is_dynamic_number(self, source: Source, value: float) -> bool:
        """Whether a number is chosen. None is ever unbacked: the lists mean the same for them."""
        if isinstance(value, int) and str(value) in self.values:
            return True
        listed = self.dynamic + self.unbacked
        return bool(listed) and self._is_listed(listed, source, None)

    def _is_listed(self, entries: tuple[Entry, ...], source: Source, dim: int | None) -> bool:
        """``dim`` None: whatever the dimension."""
        names = torch_name(source, self.parameters), self._in_program(source).name
        return any(
            (dim is None or only is None or only == dim) and _matches(pattern, names)
            for pattern, only in entries
        )

    def _in_program(self, source: Source) -> Source:
        return self.parameters.get(source, source)


NOTHING_CHOSEN: Final = Choices()


def _matches(pattern: str, names: tuple[str, str]) -> bool:
    """``names``: torch's, of which the beginning may match, and ours."""
    if pattern in names:
        return True
    expression = _expression(pattern)
    return expression is not None and expression.match(names[0]) is not None


@functools.lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except re.error as error:
        warnings.warn(
            f"{pattern!r} in dynamic_sources or unbacked_sources is no regular expression ({error}): it stands for the"
            " source of exactly this name",
            stacklevel=2,
        )
        return None


def choices_of(options: CaptureOptions, parameters: Callable[[], Mapping[Source, Source]]) -> Choices:
    """What the options and torch's settings choose; ``parameters`` is called where they choose anything by name."""
    dynamic = _entries(f"{options.dynamic_sources},{_setting('dynamic_sources')}")
    unbacked = _entries(f"{options.unbacked_sources},{_setting('unbacked_sources')}")
    values = frozenset(filter(None, _WHITESPACE.sub("", _setting("dynamic_values")).split(",")))
    if not (dynamic or unbacked or values):
        return NOTHING_CHOSEN
    return Choices(dynamic, unbacked, values, parameters() if dynamic or unbacked else {})


def _setting(name: str) -> str:
    """Of ``torch.compiler.config``, which has not all of them in all versions."""
    return getattr(torch.compiler.config, name, "") or ""


# --- names ---------------------------------------------------------------------------------------


def torch_name(source: Source, parameters: Mapping[Source, Source]) -> str:
    """The name that ``torch.compile`` has for a source, where it has one; else ours."""
    source = parameters.get(source, source)
    rule = _NAMES.get(type(source))
    return source.name if rule is None else rule(source, parameters)


def _key(source: Any, parameters: Mapping[Source, Source]) -> str:
    if isinstance(source.of, s.Globals):
        return f"G[{source.key!r}]"
    if isinstance(source.of, s.InstanceDict):
        return f"{torch_name(source.of.of, parameters)}.{source.key}"
    return f"{torch_name(source.of, parameters)}[{source.key!r}]"


def _attribute(source: Any, parameters: Mapping[Source, Source]) -> str:
    return f"{torch_name(source.of, parameters)}.{source.attr}"


_NAMES: dict[type, Callable[[Any, Mapping[Source, Source]], str]] = {
    s.Local: lambda source, _: f"L[{source.local!r}]",
    s.Free: lambda source, _: f"L[{source.local!r}]",
    s.Key: _key,
    s.Item: lambda source, parameters: f"{torch_name(source.of, parameters)}[{source.index}]",
    s.InstanceAttr: _attribute,
    s.SlotAttr: _attribute,
    s.BuiltinAttr: _attribute,
}
