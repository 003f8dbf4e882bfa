"""Sources: frozen records of the place where a pre-existing value was found.

A source is the path to a value from the objects that a frame can access when it starts (arguments, free
variables, globals, pinned objects). The native guard path, the expression that reloads the value in emitted
code, and the value's name in messages all derive from the source. A source is attached when a value is
wrapped, and never changes.

Every class is one *primitive* access. An access never runs user code (``InstanceDict`` + ``Key`` rather than
``getattr``), so guards and reloads have no side effects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import ClassVar


@cache
def _compared(cls: type) -> tuple[str, ...]:
    """Return the names of the fields that define equality of records of ``cls``."""
    return tuple(f.name for f in fields(cls) if f.compare)


class _Remembering:
    """Caches the hash and the name of a source.

    Sources are keys of every table of a trace. A source path is as long as the module nesting of a model is
    deep, so computing the hash each time is expensive.
    """

    __slots__ = ("_hash", "_name")
    _hash: int
    _name: str

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        cls.__hash__ = _Remembering.__hash__  # type: ignore[method-assign]  # dataclass keeps a hash that is there

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            cls = type(self)
            value = hash((cls, *[getattr(self, name) for name in _compared(cls)]))  # type: ignore[arg-type]  # every class is hashable
            object.__setattr__(self, "_hash", value)
            return value


@dataclass(frozen=True, slots=True)
class Source(_Remembering):
    """Base of all sources."""

    template: ClassVar[str] = "a {0.__class__.__name__}"
    """The format of ``name``. Field 0 is the source."""

    @property
    def base(self) -> Source | None:
        """The source from which this one reads, or None for a source that reads from the frame."""
        return None

    @property
    def name(self) -> str:
        """A Python-like expression for messages, for example ``self.weight``. It is computed once."""
        try:
            return self._name
        except AttributeError:
            object.__setattr__(self, "_name", self._named())
            return self._name

    def _named(self) -> str:
        """Compute ``name``."""
        return self.template.format(self)


# --- roots ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Local(Source):
    """An argument of the root frame, with its value when the frame starts."""

    local: str
    """The name of the argument."""
    template = "{0.local}"


@dataclass(frozen=True, slots=True)
class Free(Source):
    """The content of a free variable of the root frame."""

    local: str
    """The name of the variable."""
    template = "{0.local}"


@dataclass(frozen=True, slots=True)
class FreeCell(Source):
    """The cell object of a free variable of the root frame."""

    local: str
    """The name of the variable."""
    template = "<cell {0.local}>"


@dataclass(frozen=True, slots=True)
class Globals(Source):
    """The globals dictionary of the root frame."""

    template = "globals()"


@dataclass(frozen=True, slots=True)
class Pinned(Source):
    """A specific object that the compiled entry keeps alive: a class, a module's globals, a function.

    Records are compared by the identity of the object.
    """

    value: object = field(compare=False, hash=False, repr=False)
    """The object, or a weak reference to it in guards that an entry keeps for messages."""
    label: str
    """The name of the object for messages."""
    key: int = 0
    """The id of the object, which equality compares."""
    template = "{0.label}"


def pinned(value: object, label: str) -> Pinned:
    """Return the source of an object that is the same in every call. ``label`` is its name for messages."""
    return Pinned(value, label, id(value))


@dataclass(frozen=True, slots=True)
class Drawn(Source):
    """The result of the ``index``-th call that the frame makes before everything else.

    No guard can depend on it.
    """

    index: int
    """The number of the call in the frame, counted from 0."""
    label: str
    """The name of the call for messages."""
    template = "{0.label} #{0.index}"


# --- steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step(Source):
    """A source that is reached from another source by one primitive access."""

    of: Source
    """The source of the value that is read from."""

    @property
    def base(self) -> Source:
        """The source ``of``."""
        return self.of


@dataclass(frozen=True, slots=True)
class InstanceDict(Step):
    """``object.__getattribute__(of, "__dict__")`` of an instance, bypassing class-level descriptors."""

    template = "{0.of.name}.__dict__"


@dataclass(frozen=True, slots=True)
class InstanceAttr(Step):
    """An entry of the instance dictionary: ``of.__dict__[attr]``."""

    attr: str
    """The name of the attribute."""
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class SlotAttr(Step):
    """A ``__slots__`` member or C-level getset of ``owner``: ``owner.__dict__[attr].__get__(of)``."""

    owner: type
    """The class that defines the slot."""
    attr: str
    """The name of the slot."""
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class BuiltinAttr(Step):
    """``getattr(of, attr)`` that is known to run no user code.

    Examples are functions, methods, partials, and ``grad`` of tensors.
    """

    attr: str
    """The name of the attribute."""
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class ClassAttr(Step):
    """The raw value of ``attr`` (no descriptor call) along the MRO of the class ``of``."""

    attr: str
    """The name of the attribute."""
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class TypeOf(Step):
    """``type(of)``."""

    template = "type({0.of.name})"


@dataclass(frozen=True, slots=True)
class Item(Step):
    """Item ``index`` of a list, tuple or deque (or a subclass), by C-level access."""

    index: int
    """The position, counted from 0."""
    template = "{0.of.name}[{0.index}]"


@dataclass(frozen=True, slots=True)
class ItemAt(Step):
    """The item of a list, tuple or deque whose index is the value of the source ``at``, by C-level access."""

    at: Source
    """The source of the index."""
    template = "{0.of.name}[{0.at.name}]"


@dataclass(frozen=True, slots=True)
class Key(Step):
    """The value of a constant key in a dict (or a subclass), by C-level access."""

    key: object
    """The key, for example a string or an integer."""
    template = "{0.of.name}[{0.key!r}]"


@dataclass(frozen=True, slots=True)
class KeyAt(Step):
    """The ``index``-th key of a dict, set or frozenset in iteration order."""

    index: int
    """The position, counted from 0."""
    template = "list({0.of.name})[{0.index}]"


@dataclass(frozen=True, slots=True)
class ValueAt(Step):
    """The ``index``-th value of a dict in iteration order, for keys that are not constants."""

    index: int
    """The position, counted from 0."""
    template = "list({0.of.name}.values())[{0.index}]"


@dataclass(frozen=True, slots=True)
class Upcoming(Step):
    """The item that an iterator gives after ``index`` other items.

    The access does not advance the iterator.
    """

    index: int
    """The number of items that the iterator gives before."""

    def _named(self) -> str:
        return f"next({self.of.name})" if not self.index else f"next #{self.index} of {self.of.name}"


@dataclass(frozen=True, slots=True)
class Converted(Step):
    """``by(of)``: another form of the same value. ``by`` is a C function that runs no Python code."""

    by: Callable[[object], object]
    """The C function, for example ``ContextVar.get``."""
    template = "{0.by.__name__}({0.of.name})"


@dataclass(frozen=True, slots=True)
class Cached(Step):
    """The result that the ``functools.lru_cache`` ``of`` holds for a key of its dictionary.

    The value is ``native.NOT_CACHED`` if the cache holds no result.
    """

    key: object = field(compare=False, repr=False)
    """The key as the cache makes it of the arguments."""
    call: str
    """The arguments as text for messages."""
    at: int
    """The address of ``key``, which equality compares. Equal keys have one key object."""

    template = "{0.of.name}({0.call})"


@dataclass(frozen=True, slots=True)
class Cell(Step):
    """The content of a cell object."""

    template = "{0.of.name}.cell_contents"


@dataclass(frozen=True, slots=True)
class Size(Step):
    """``of.size(dim)`` of a tensor."""

    dim: int
    """The dimension, counted from 0."""
    template = "{0.of.name}.size({0.dim})"


@dataclass(frozen=True, slots=True)
class Stride(Step):
    """``of.stride(dim)`` of a tensor."""

    dim: int
    """The dimension, counted from 0."""
    template = "{0.of.name}.stride({0.dim})"


@dataclass(frozen=True, slots=True)
class StorageOffset(Step):
    """``of.storage_offset()`` of a tensor."""

    template = "{0.of.name}.storage_offset()"


@dataclass(frozen=True, slots=True)
class Affine(Step):
    """The number ``n`` for which ``scale * n + offset`` equals the number ``of``.

    Missing if ``n`` is not an integer.
    """

    scale: int
    """The factor."""
    offset: int
    """The summand."""

    def _named(self) -> str:
        shifted = f"({self.of.name} - {self.offset})" if self.offset else self.of.name
        return f"{shifted} / {self.scale}" if self.scale != 1 else shifted
