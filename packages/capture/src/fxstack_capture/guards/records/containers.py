"""Guard records about the lengths and keys of containers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fxstack_capture.guards.accesses import is_instance_key
from fxstack_capture.guards.records.check import Check, LoweredCheck, Reader
from fxstack_capture.guards.text import short
from fxstack_capture.sources import Source


@dataclass(frozen=True, slots=True)
class LengthIs(Check):
    """The length, read in C, of a list, tuple, dict, set, frozenset or deque, or of an instance of a
    subclass.
    """

    length: int
    """The demanded number of items."""

    cost = 2
    kinds = ("SEQUENCE_LENGTH",)

    def demand(self) -> str:
        return f"must have length {self.length}"

    def condition(self, name: str) -> str:
        return f"len({name}) == {self.length}"

    def describe(self, value: Any, _read: Reader) -> str:
        try:
            return f"its length is {len(value)}"
        except Exception:
            return "its length is unknown"


@dataclass(frozen=True, slots=True, eq=False)
class KeysAre(Check):
    """The keys of a dictionary, by default in order.

    Constant keys are compared by type and value, other keys by identity. The comparison and the hash of two
    records follow the same rules. Neither runs ``__eq__`` or ``__hash__`` of a key, because these methods may
    be the program's.
    """

    keys: tuple[object, ...]
    """The demanded keys."""
    ordered: bool = True
    """Whether the order of the keys matters."""

    cost = 20
    kinds = ("DICT_KEYS_MATCH",)
    compared = ("keys",)
    nanoseconds = 60
    weak_tuples = ("keys",)

    def _identity(self) -> tuple[object, ...]:
        """Return the parts by which two records are compared: the order flag, and the type and value (or id)
        of each key.
        """
        plain = ((type(key), key if type(key) in _PLAIN_KEYS else id(key)) for key in self.keys)
        return self.ordered, *plain

    def __eq__(self, other: object) -> bool:
        return type(other) is KeysAre and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def demand(self) -> str:
        return f"must have the keys {short(self.keys)}" + (" in this order" if self.ordered else "")

    def condition(self, name: str) -> str:
        keys = ", ".join(map(short, self.keys))
        return f"list({name}) == [{keys}]" if self.ordered else f"{name}.keys() == {{{keys}}}"

    def describe(self, value: Any, _read: Reader) -> str:
        keys = tuple(dict.keys(value)) if isinstance(value, dict) else tuple(value)
        return f"the keys are {short(keys)}"


_PLAIN_KEYS = frozenset({str, int})
"""The classes of keys that are compared by value."""


@dataclass(frozen=True, slots=True)
class HasKey(Check):
    """A dictionary or set has, or does not have, a constant key. The check reads the container in C."""

    key: object
    """The constant key."""
    present: bool
    """Whether the key must exist; if false, it must not exist."""

    cost = 5
    kinds = ("DICT_CONTAINS",)
    compared = ("key",)

    def lower(self, source: Source) -> LoweredCheck:
        # A lookup of an attribute does not create the dictionary of the instance.
        if is_instance_key(source, self.key):
            return source.base, "HasAttr", self.arguments()
        return source, "HasKey", self.arguments()

    def demand(self) -> str:
        return f"must {'' if self.present else 'not '}have the key {self.key!r}"

    def condition(self, name: str) -> str:
        return f"{self.key!r} {'in' if self.present else 'not in'} {name}"

    def describe(self, _value: object, _read: Reader) -> str:
        return f"the key {'is missing' if self.present else 'exists'}"


@dataclass(frozen=True, slots=True)
class MembersAre(Check):
    """An instance dictionary has none of the keys ``absent``. Under each of the keys ``empty`` it has an
    empty dict.

    The record combines the guards that every call of a module without hooks needs.
    """

    absent: tuple[str, ...]
    """Keys that must not exist."""
    empty: tuple[str, ...]
    """Keys whose values must be empty dictionaries."""

    cost = 10
    kinds = ("EMPTY_NN_MODULE_HOOKS_DICT", "DICT_CONTAINS")

    def lower(self, source: Source) -> LoweredCheck:
        return source.base, "MembersAre", self.arguments()

    def demand(self) -> str:
        absent, empty = ", ".join(self.absent), ", ".join(self.empty)
        return f"must not have the keys {absent}, and the dictionaries {empty} must be empty"

    def condition(self, name: str) -> str:
        parts = []
        if self.absent:
            parts.append(f"not {{{', '.join(map(repr, self.absent))}}} & {name}.keys()")
        if self.empty:
            parts.append(" == ".join([*(f"{name}[{key!r}]" for key in self.empty), "{}"]))
        return " and ".join(parts)

    def describe(self, value: Any, _read: Reader) -> str:
        present = [f"the key {name} exists" for name in self.absent if name in value]
        filled = [f"{name} is {short(value.get(name))}" for name in self.empty if value.get(name) != {}]
        return ", ".join((*present, *filled)) or "the dictionary has changed back since the check"
