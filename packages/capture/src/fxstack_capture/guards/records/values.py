"""Guard records about the type, the identity or the value of one object."""

from __future__ import annotations

import builtins
import inspect
import re
from dataclasses import dataclass, field

from fxstack_capture.guards.records.check import Check, Reader
from fxstack_capture.guards.text import class_name, literal, short


@dataclass(frozen=True, slots=True)
class TypeIs(Check):
    """The type of the value is exactly ``cls``."""

    cls: type
    """The exact class."""

    cost = 1
    kinds = ("TYPE_MATCH",)
    weak_fields = ("cls",)

    def demand(self) -> str:
        return f"must be of type {short(self.cls)}"

    def condition(self, name: str) -> str:
        cls = self.cls
        if cls is type(None):
            return f"{name} is None"
        # No Python name leads to a builtin class such as ``function``, so the text calls ``unchanged``.
        if cls.__module__ == "builtins" and getattr(builtins, cls.__name__, None) is not cls:
            return f"type({name}).__name__ == {cls.__name__!r}"
        return f"type({name}) is {literal(cls)}"

    def describe(self, value: object, _read: Reader) -> str:
        return f"it is a {class_name(type(value))}"


@dataclass(frozen=True, slots=True)
class WordIs(Check):
    """An int whose absolute value is below 2**62.

    Compiled code computes symbolic numbers with 64 bits. Python's ints have no bounds.
    """

    cost = 1
    kinds = ("TYPE_MATCH",)

    def demand(self) -> str:
        return "must be an int with an absolute value below 2**62"

    def condition(self, name: str) -> str:
        return f"type({name}) is int and abs({name}) < 2**62"


@dataclass(frozen=True, slots=True)
class IdentityIs(Check):
    """The value is the object ``obj`` itself.

    If ``obj`` supports weak references, the entry does not keep ``obj`` alive and dies with ``obj``.
    """

    obj: object = field(compare=False)
    """The demanded object."""
    key: int
    """The id of ``obj``. Records are compared by it, because ``obj`` may have an ``__eq__`` of the program."""
    weak: bool = False

    cost = 1
    kinds = ("ID_MATCH",)
    weak_fields = ("obj",)

    def arguments(self) -> tuple[object, ...]:
        return (self.obj,)

    def demand(self) -> str:
        return f"must be the same object as before, {short(self.obj)}"

    def condition(self, name: str) -> str:
        obj = self.obj
        if obj is None or obj is True or obj is False or obj is ...:
            return f"{name} is {obj}"
        if inspect.isclass(obj) or inspect.isroutine(obj):
            full_name = f"{getattr(obj, '__module__', None) or 'builtins'}.{obj.__qualname__}"
            full_name = full_name.removeprefix("builtins.").removeprefix("__main__.")
            # ``torch.relu is torch.relu`` would say nothing. If the value has the name of the object, the
            # text says "unchanged".
            if full_name.rpartition(".")[2] not in re.findall(r"\w+", name)[-1:]:
                return f"{name} is {full_name}"
        return f"unchanged({name})"


@dataclass(frozen=True, slots=True)
class Equals(Check):
    """The value has the same type and is equal.

    It is an int, float, complex, str or bytes, or a tuple or frozenset of such values. Floats are compared
    bit by bit, so that NaN equals NaN.
    """

    value: object
    """The demanded value."""

    cost = 2
    kinds = ("CONSTANT_MATCH", "EQUALS_MATCH")
    compared = ("value",)

    def demand(self) -> str:
        return f"must be {short(self.value)}"

    def condition(self, name: str) -> str:
        value = self.value
        if isinstance(value, bool) or value is None:
            return f"{name} is {value}"
        if isinstance(value, str | bytes):
            return f"{name} == {value!r}"
        # Zeros have signs, and NaN is not equal to itself.
        if isinstance(value, float | complex) and (value == 0 or "nan" in repr(value)):
            return f"repr({name}) == {repr(value)!r}"
        return f"type({name}) is {type(value).__name__} and {name} == {literal(value)}"


@dataclass(frozen=True, slots=True)
class RangeIs(Check):
    """A range object with these three numbers."""

    start: int
    stop: int
    step: int

    cost = 60
    kinds = ("EQUALS_MATCH",)

    def arguments(self) -> tuple[object, ...]:
        return ((self.start, self.stop, self.step),)

    def demand(self) -> str:
        return f"must be range({self.start}, {self.stop}, {self.step})"

    def condition(self, name: str) -> str:
        return f"({name}.start, {name}.stop, {name}.step) == ({self.start}, {self.stop}, {self.step})"


@dataclass(frozen=True, slots=True)
class SlotUnset(Check):
    """The slot ``attr`` of the object is unset. The class ``owner`` defines the slot."""

    owner: type
    """The class that defines the slot."""
    attr: str
    """The name of the slot."""

    cost = 2
    kinds = ("HASATTR",)
    weak_fields = ("owner",)
    failure = "the slot has a value"

    def arguments(self) -> tuple[object, ...]:
        return (self.owner.__dict__[self.attr],)

    def demand(self) -> str:
        return f"must have no value in the slot {self.attr}"

    def condition(self, name: str) -> str:
        return f"not hasattr({name}, {self.attr!r})"


@dataclass(frozen=True, slots=True)
class CellEmpty(Check):
    """The cell is empty: its variable is unbound."""

    cost = 1
    kinds = ("HASATTR",)
    failure = "the cell has a value"

    def demand(self) -> str:
        return "must be an empty cell"

    def condition(self, name: str) -> str:
        return f"unchanged({name})"
