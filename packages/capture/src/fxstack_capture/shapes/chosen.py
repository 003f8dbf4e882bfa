"""Sizes and numbers that the user made symbolic by naming their source or their value.

An entry of ``dynamic_sources`` or ``unbacked_sources`` has one of three forms: a source name in torch's
notation (``L['x']``, ``G['scale']``), a regular expression that matches the beginning of such a name, or a
name as in fxstack's messages (``x``). A ``:N`` at the end restricts the entry to dimension N. Entries come
from the options and from the settings of the same names in ``torch.compiler.config`` (with their environment
variables). Both apply.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch.compiler.config

from fxstack_capture import sources as s
from fxstack_capture.options import CaptureOptions
from fxstack_capture.sources import Source
from fxstack_interchange.user_warnings import warn_user

_WITH_DIMENSION: Final = re.compile(r"(.+):(\d+)")
_WHITESPACE: Final = re.compile(r"\s")

Entry = tuple[str, int | None]
"""A pair: a pattern, and the dimension to which it applies. None stands for all dimensions."""


@functools.lru_cache(maxsize=64)
def _entries(text: str) -> tuple[Entry, ...]:
    """Return the entries of ``text``, a comma-separated list of patterns such as ``L['x']:0,scale``."""
    entries: list[Entry] = []
    for entry in filter(None, _WHITESPACE.sub("", text).split(",")):
        match = _WITH_DIMENSION.fullmatch(entry)
        entries.append((match[1], int(match[2])) if match else (entry, None))
    return tuple(entries)


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices that apply to one trace. ``policy`` asks them about each size and number."""

    dynamic: tuple[Entry, ...] = ()
    """The entries of ``dynamic_sources``."""
    unbacked: tuple[Entry, ...] = ()
    """The entries of ``unbacked_sources``."""
    values: frozenset[str] = frozenset()
    """Sizes and integers that are chosen by their value (``dynamic_values``). The values are texts."""
    parameters: Mapping[Source, Source] = field(default_factory=dict)
    """Maps the frame's sources of arguments to the sources with the program's names.

    The names differ in a call of a module, where the program's names are the parameters of ``forward``.
    """

    def is_dynamic(self, source: Source, dim: int, size: int) -> bool:
        """Whether a size is chosen to be symbolic, by its source or by its value ``size``.

        It is the size of dimension ``dim`` of the tensor at ``source``.
        """
        return str(size) in self.values or self.is_named_dynamic(source, dim)

    def is_named_dynamic(self, source: Source, dim: int) -> bool:
        """Whether an entry of ``dynamic_sources`` matches dimension ``dim`` of the tensor at ``source``."""
        return bool(self.dynamic) and self._is_listed(self.dynamic, source, dim)

    def is_unbacked(self, source: Source, dim: int) -> bool:
        """Whether a size is chosen to be unbacked. No decision may depend on the value of an unbacked size."""
        return bool(self.unbacked) and self._is_listed(self.unbacked, source, dim)

    def is_dynamic_number(self, source: Source, value: float) -> bool:
        """Whether the int or float at ``source`` is chosen, by its source or by its value.

        Numbers are never unbacked. Therefore both lists mean the same for numbers.
        """
        if isinstance(value, int) and str(value) in self.values:
            return True
        listed = self.dynamic + self.unbacked
        return bool(listed) and self._is_listed(listed, source, None)

    def _is_listed(self, entries: tuple[Entry, ...], source: Source, dim: int | None) -> bool:
        """Whether an entry matches ``source``.

        For a number, ``dim`` is None, and an entry for any dimension matches.
        """
        names = torch_name(source, self.parameters), self._in_program(source).name
        return any(
            (dim is None or restricted_to is None or restricted_to == dim) and _matches(pattern, names)
            for pattern, restricted_to in entries
        )

    def _in_program(self, source: Source) -> Source:
        """Return the source with the program's name of the argument (see ``parameters``)."""
        return self.parameters.get(source, source)


NOTHING_CHOSEN: Final = Choices()
"""The choices of most traces: none. The policy skips its checks for this object."""


def _matches(pattern: str, names: tuple[str, str]) -> bool:
    """Whether ``pattern`` matches one of ``names``: torch's name, or fxstack's name.

    A regular expression is matched only with torch's name, from its beginning.
    """
    if pattern in names:
        return True
    expression = _expression(pattern)
    return expression is not None and expression.match(names[0]) is not None


@functools.lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str] | None:
    """Return the compiled pattern. If it is not a regular expression, warn and return None."""
    try:
        return re.compile(pattern)
    except re.error as error:
        warn_user(
            f"{pattern!r} in dynamic_sources or unbacked_sources is not a valid regular expression ({error}),"
            " so the entry matches only the source with exactly this name",
            UserWarning,
        )
        return None


def choices_of(options: CaptureOptions, parameters: Callable[[], Mapping[Source, Source]]) -> Choices:
    """Return the choices of the options and of torch's settings.

    Called once for each trace. ``parameters`` is called only if an entry chooses a source by name.
    """
    dynamic = _entries(f"{options.dynamic_sources},{_setting('dynamic_sources')}")
    unbacked = _entries(f"{options.unbacked_sources},{_setting('unbacked_sources')}")
    values = frozenset(filter(None, _WHITESPACE.sub("", _setting("dynamic_values")).split(",")))
    if not (dynamic or unbacked or values):
        return NOTHING_CHOSEN
    return Choices(dynamic, unbacked, values, parameters() if dynamic or unbacked else {})


def _setting(name: str) -> str:
    """Return a text setting of ``torch.compiler.config``. Return "" if this version of torch lacks the
    setting.
    """
    return getattr(torch.compiler.config, name, "") or ""


# --- names ---------------------------------------------------------------------------------------


def torch_name(source: Source, parameters: Mapping[Source, Source]) -> str:
    """Return the name that ``torch.compile`` uses for a source (``L['x']``). If torch has none, return
    fxstack's name.

    ``parameters`` is ``Choices.parameters``.
    """
    source = parameters.get(source, source)
    rule = _NAMES.get(type(source))
    return source.name if rule is None else rule(source, parameters)


def _key(source: Any, parameters: Mapping[Source, Source]) -> str:
    """Return torch's name of a global, an attribute in a ``__dict__``, or an item."""
    if isinstance(source.of, s.Globals):
        return f"G[{source.key!r}]"
    if isinstance(source.of, s.InstanceDict):
        return f"{torch_name(source.of.of, parameters)}.{source.key}"
    return f"{torch_name(source.of, parameters)}[{source.key!r}]"


def _attribute(source: Any, parameters: Mapping[Source, Source]) -> str:
    """Return torch's name of an attribute, such as ``L['self'].scale``."""
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
"""Maps types of sources to functions that return torch's name of a source.

Sources of other types have no name in torch.
"""
