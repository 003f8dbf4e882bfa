"""The base classes of guard records: a check of one value, a relation of several values, and a guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fxstack_capture.guards.text import short
from fxstack_capture.guards.weak_references import WeakSources
from fxstack_capture.sources import Source

Reader = Callable[[Source], Any]
"""A function that returns the present value at a source, for a message. The result may be ``accesses.MISSING``."""

LoweredCheck = tuple["Source | None", str, tuple[object, ...]]
"""The source of the native check (None: torch's global state), the name of the native kind, and its arguments."""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on one value: the base class of all kinds of guards.

    The fields of a subclass are the condition. Its class attributes and methods are what the guard tree, messages and
    guard filters need of the kind. A new kind is one subclass, and one C function unless an existing native kind does
    the check: in native/guard_tree/checks.c, in alias_checks.c for a relation, in torch_checks.c for tensors and
    torch's state.
    """

    cost: ClassVar[int]
    """The time of the native check relative to other kinds, from 1 to 60. Cheap checks of a value run first."""

    kinds: ClassVar[tuple[str, ...]]
    """The name of the kind for ``guard_filter_fn``, followed by the kinds from which it derives (torch's names)."""

    nanoseconds: ClassVar[int] = 5
    """The median time of the check in nanoseconds (docs/results/overhead.md)."""

    is_of_frame: ClassVar[bool] = True
    """Whether a guard filter sees the name and the value of the source, as filters of torch do."""

    failure: ClassVar[str | None] = None
    """The text of ``describe`` if it is the same for all values."""

    weak_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that hold an object of the program or a source. ``weaken`` rewrites them."""

    weak_tuples: ClassVar[tuple[str, ...]] = ()
    """Fields that hold a tuple of objects of the program or of sources. ``weaken`` rewrites their items."""

    compared: ClassVar[tuple[str, ...]] = ()
    """Fields whose numbers and texts are compared with values of the program.

    ``trace.late_guards.addresses`` looks for ids.
    """

    def arguments(self) -> tuple[object, ...]:
        """Return the arguments of the native check: by default all fields."""
        names: tuple[str, ...] = self.__match_args__
        return tuple([getattr(self, name) for name in names])

    def lower(self, source: Source) -> LoweredCheck:
        """Return the native check of the value at ``source``, for the guard tree. The default kind is the name of the
        class.
        """
        return source, type(self).__name__, self.arguments()

    def demand(self) -> str:
        """Return the condition as a text that follows the name of a value, for example "must be of type int"."""
        raise NotImplementedError

    def condition(self, name: str) -> str:
        """Return the condition as Python for the value called ``name``, for example ``type(x) is int``.

        The text may call three functions that Python lacks: ``unchanged(x)`` (``x`` is the object of the trace),
        ``marks(x)`` (dimensions by mark), ``share_memory(x, y)``.
        """
        raise NotImplementedError

    def describe(self, value: Any, _read: Reader) -> str:
        """Return a phrase about a value that fails the check, for example "it is a str". Messages put it after "but".

        ``_read`` reads the values at the other sources of a relation.
        """
        return self.failure or f"it is {short(value)}"

    def weaken(self, weak: WeakSources) -> Check:
        """Return the check as an entry keeps it for messages: weak references replace the program's objects."""
        changes: dict[str, Any] = {}
        for name in self.weak_fields:
            old = getattr(self, name)
            new = weak.rewrite(old)
            if new is not old:
                changes[name] = new
        for name in self.weak_tuples:
            changes[name] = tuple(map(weak.rewrite, getattr(self, name)))
        return replace(self, **changes) if changes else self


@dataclass(frozen=True, slots=True)
class Relation(Check):
    """A condition on the values of several sources. It is checked after all checks of one value."""

    def relate(self, source: Source, register: Callable[[Source], int]) -> tuple[object, ...]:
        """Return the arguments of the native relation of ``source`` to the other sources.

        ``register`` returns the register that holds the value of a source.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Guard:
    """One check on one source: the unit that the trace records, that filters drop, and that messages name."""

    source: Source
    """The place of the value."""
    check: Check
    """The condition on the value."""
    stack: tuple[tuple[str, int, str], ...] = field(default=(), compare=False)
    """The user's frames (file, line, function) that caused the guard, innermost last. () if they are unknown."""

    def weaken(self, weak: WeakSources) -> Guard:
        """Return the guard as an entry keeps it for messages (see ``Check.weaken``)."""
        check = self.check.weaken(weak)
        source = weak.source(self.source)
        if check is self.check and source is self.source:
            return self
        return Guard(source, check, self.stack)


class GuardSet:
    """The guards of one trace, in order, without duplicates. A ``Trace`` owns the set."""

    def __init__(self) -> None:
        self._guards: dict[tuple[Source, Check], Guard] = {}

    def add(self, source: Source, check: Check, stack: tuple[tuple[str, int, str], ...] = ()) -> None:
        """Add a guard, unless the set has the same check of the same source. ``Trace.guard`` calls this method.

        ``stack``: see ``Guard``.
        """
        self._guards.setdefault((source, check), Guard(source, check, stack))

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards.values())

    def __len__(self) -> int:
        return len(self._guards)
