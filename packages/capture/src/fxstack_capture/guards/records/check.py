"""The base classes of guard records: a check of one value, a relation of several values, and a guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fxstack_capture.guards.text import short
from fxstack_capture.guards.weak_references import WeakSources
from fxstack_capture.sources import Source

Reader = Callable[[Source], Any]
"""A function that returns the current value at a source, for a message. The result may be
``accesses.MISSING``.
"""

LoweredCheck = tuple["Source | None", str, tuple[object, ...]]
"""A triple: the source of the checked value, the name of the native kind, and the arguments of the check.

A source of None stands for torch's global state.
"""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on one value: the base class of all kinds of guards.

    The fields of a record are its condition. The class attributes and methods describe the kind for the guard
    tree, messages and guard filters. A new kind is one subclass. If no native kind does the check, it also
    needs a C function: in native/guard_tree/checks.c, in alias_checks.c for a relation, or in torch_checks.c
    for tensors and torch's state.
    """

    cost: ClassVar[int]
    """The time of the native check relative to other kinds, from 1 to 60. A cheap check of a value runs
    before an expensive one.
    """

    kinds: ClassVar[tuple[str, ...]]
    """Torch's names for the kind, for ``guard_filter_fn``: the kind itself, then the kinds from which it
    derives.
    """

    nanoseconds: ClassVar[int] = 5
    """The median time of the check in nanoseconds (docs/results/overhead.md)."""

    is_of_frame: ClassVar[bool] = True
    """Whether a guard filter sees the name and the value of the source. Torch decides this for each kind."""

    failure: ClassVar[str | None] = None
    """The result of ``describe`` if it is the same for all values."""

    weak_fields: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that hold an object of the program or a source. ``weaken`` rewrites these fields."""

    weak_tuples: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that hold a tuple of objects of the program or of sources. ``weaken`` rewrites the
    items.
    """

    compared: ClassVar[tuple[str, ...]] = ()
    """Names of the fields whose numbers and texts are compared with values of the program.

    ``trace.late_guards.addresses`` searches these fields for ids of objects.
    """

    def arguments(self) -> tuple[object, ...]:
        """Return the arguments of the native check. The default is all fields."""
        names: tuple[str, ...] = self.__match_args__
        return tuple([getattr(self, name) for name in names])

    def lower(self, source: Source) -> LoweredCheck:
        """Return the native check of the value at ``source``, for the guard tree.

        By default, the name of the native kind is the name of the class.
        """
        return source, type(self).__name__, self.arguments()

    def demand(self) -> str:
        """Return the condition as a phrase that follows the name of a value, for example "must be of type
        int".
        """
        raise NotImplementedError

    def condition(self, name: str) -> str:
        """Return the condition as a Python expression about the value called ``name``, for example ``type(x)
        is int``.

        The expression may call three functions that Python does not have. ``unchanged(x)``: ``x`` is the
        object of the trace. ``marks(x)``: the marked dimensions of ``x``. ``share_memory(x, y)``.
        """
        raise NotImplementedError

    def describe(self, value: Any, _read: Reader) -> str:
        """Return a phrase about a value that fails the check, for example "it is a str". Messages put it
        after "but".

        A relation uses ``_read`` to read the values at its other sources.
        """
        return self.failure or f"it is {short(value)}"

    def weaken(self, weak: WeakSources) -> Check:
        """Return a copy of the check in which weak references replace the program's objects.

        An entry keeps the copy for messages.
        """
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
    """A condition on the values of several sources. Relations are checked after all checks of single values."""

    def relate(self, source: Source, register: Callable[[Source], int]) -> tuple[object, ...]:
        """Return the arguments of the native relation between ``source`` and the other sources.

        ``register`` takes a source and returns the number of the register that holds its value.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Guard:
    """One check of one source. The trace records guards, filters drop guards, and messages name guards."""

    source: Source
    """The place of the value."""
    check: Check
    """The condition on the value."""
    stack: tuple[tuple[str, int, str], ...] = field(default=(), compare=False)
    """The user's frames (file, line, function) that caused the guard, innermost last. Empty if they are
    unknown.
    """

    def weaken(self, weak: WeakSources) -> Guard:
        """Return a copy of the guard with weak references to the program's objects (see ``Check.weaken``)."""
        check = self.check.weaken(weak)
        source = weak.source(self.source)
        if check is self.check and source is self.source:
            return self
        return Guard(source, check, self.stack)


class GuardSet:
    """The guards of one trace, in order, without duplicates. Each ``Trace`` owns one set."""

    def __init__(self) -> None:
        self._guards: dict[tuple[Source, Check], Guard] = {}

    def add(self, source: Source, check: Check, stack: tuple[tuple[str, int, str], ...] = ()) -> None:
        """Add a guard, unless the set has the same check of the same source. ``Trace.guard`` calls this
        method.

        For ``stack``, see ``Guard``.
        """
        self._guards.setdefault((source, check), Guard(source, check, stack))

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards.values())

    def __len__(self) -> int:
        return len(self._guards)
