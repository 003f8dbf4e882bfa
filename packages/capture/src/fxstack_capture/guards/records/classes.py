"""Guard records about classes: their attributes, their bases, and their abstract base classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fxstack_capture.guards.records.check import Check, Reader
from fxstack_capture.guards.text import class_name, literal, short
from fxstack_capture.guards.weak_references import referent_of

NOT_FOUND: Any = object()
"""The value in ``ClassUnchanged`` of an attribute that the class does not have.

An attribute whose value is None is recorded as None.
"""
_MAX_NAMES = 8
"""The largest number of attributes that a message names."""


def _attribute(value: object) -> str:
    """Return the text of an attribute's value for a message: "missing", or a short ``repr``."""
    return "missing" if value is NOT_FOUND else short(value)


@dataclass(frozen=True, slots=True)
class ClassUnchanged(Check):
    """The class still has the recorded attributes.

    Raw lookups of ``names`` along the MRO give the recorded objects, or no attribute (``NOT_FOUND``). The
    check compares the version tag of the class first. It looks the names up only if the tag has changed.
    ``mro`` is compared if the program has read the bases of the class.
    """

    names: tuple[str, ...]
    """The names of the attributes that the program has read from the class."""
    values: tuple[object, ...] = field(compare=False, repr=False)
    """The value of each name during the trace, in the order of ``names``."""
    mro: tuple[type, ...] = ()
    """The class and its bases during the trace. Empty if the program has not read the bases."""

    cost = 6
    kinds = ("CLASS_MATCH",)
    weak_tuples = ("values", "mro")

    def arguments(self) -> tuple[object, ...]:
        values = tuple(None if value is NOT_FOUND else (value,) for value in self.values)
        return self.names, (*values, *((base,) for base in self.mro))

    def demand(self) -> str:
        attributes = f"attributes {', '.join(self.names)}" if self.names else ""
        parts = filter(None, (attributes, "bases" if self.mro else ""))
        return f"must keep its {' and '.join(parts)}"

    def condition(self, name: str) -> str:
        names = [f"{name}.{attribute}" for attribute in sorted(self.names)[:_MAX_NAMES]]
        names += ["..."] if len(self.names) > _MAX_NAMES else []
        return f"unchanged({', '.join([*names, *([f'{name}.__mro__'] if self.mro else [])])})"

    def describe(self, cls: object, _read: Reader) -> str:
        if not isinstance(cls, type):
            return f"it is {short(cls)}"
        changes = []
        for name, old in zip(self.names, self.values, strict=True):
            new = next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), NOT_FOUND)
            if new is not referent_of(old):
                changes.append(f"{class_name(cls)}.{name} is {_attribute(new)} (was {_attribute(old)})")
        bases = tuple(map(referent_of, self.mro))
        if bases and bases != cls.__mro__:
            new_names, old_names = (
                ", ".join("a class that no longer exists" if c is None else class_name(c) for c in mro[1:])
                for mro in (cls.__mro__, bases)
            )
            changes.append(f"the bases of {class_name(cls)} are {new_names} (were {old_names})")
        return ", ".join(changes) or f"the class is {class_name(cls)}"


@dataclass(frozen=True, slots=True)
class SubclassIs(Check):
    """The abstract class ``cls`` gives the recorded answer: whether the guarded class is a subclass.

    The answer is that of ``_abc._abc_subclasscheck(cls, value)``. Registering a class with ``cls`` may change
    the answer. The check first compares the number of registrations in the process. It asks ``cls`` only if
    the number has changed.
    """

    cls: type = field(compare=False)
    """The abstract class."""
    key: int
    """The id of ``cls``. Records are compared by it, because the metaclass of ``cls`` may define ``__eq__``."""
    answer: bool
    """The answer during the trace."""

    cost = 3
    kinds = ("CLASS_MATCH",)
    weak_fields = ("cls",)

    def arguments(self) -> tuple[object, ...]:
        return (self.cls, self.answer)

    def demand(self) -> str:
        return f"must {'' if self.answer else 'not '}be a subclass of {short(self.cls)}"

    def condition(self, name: str) -> str:
        return f"{'' if self.answer else 'not '}issubclass({name}, {literal(self.cls)})"

    def describe(self, _value: object, _read: Reader) -> str:
        return f"it is {'not ' if self.answer else ''}a subclass"
