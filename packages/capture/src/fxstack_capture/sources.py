"""Sources: frozen records of the place where a value from outside was found.

A source is a path to a value. It begins at an object that a frame can access when it starts: an argument, a
free variable, the globals, or a pinned object. Three things derive from the source: the native access in
guards, the expression that reloads the value in emitted code, and the name of the value in messages. A value
gets its source when it is wrapped, and the source never changes.

Every class is one *primitive* access, which never runs user code. For example, ``InstanceDict`` and ``Key``
are used in place of ``getattr``. Therefore guards and reloads have no side effects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import ClassVar


@cache
def _compared(cls: type) -> tuple[str, ...]:
    """Return the names of the fields by which records of ``cls`` are compared."""
    return tuple(f.name for f in fields(cls) if f.compare)


class _Remembering:
    """Caches the hash and the name of a source.

    Sources are keys of many tables of a trace. A source is as long as the modules of a model are nested deep,
    so computing its hash each time would be expensive.
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
    """The format string of ``name``. Field 0 is the source."""

    @property
    def base(self) -> Source | None:
        """The source from which this source reads. None for a source that reads from the frame."""
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
    """An argument of the root frame. The value is that at the start of the frame."""

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
    """An object that the compiled entry keeps alive: a class, a module's globals, a function.

    Records are compared by the identity of the object.
    """

    value: object = field(compare=False, hash=False, repr=False)
    """The object. In guards that an entry keeps for messages, it is a weak reference to the object."""
    label: str
    """The name of the object for messages."""
    key: int = 0
    """The id of the object, by which records are compared."""
    template = "{0.label}"


def pinned(value: object, label: str) -> Pinned:
    """Return the source of an object that is the same in every call. ``label`` is the object's name in
    messages.
    """
    return Pinned(value, label, id(value))


@dataclass(frozen=True, slots=True)
class Drawn(Source):
    """The result of a call that the frame makes before everything else, for example a random draw.

    No guard can depend on it.
    """

    index: int
    """The number of the call, counted from 0."""
    label: str
    """The name of the call for messages."""
    template = "{0.label} #{0.index}"


# --- steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step(Source):
    """A source that is one primitive access away from another source, ``of``."""

    of: Source
    """The source of the value from which this source reads."""

    @property
    def base(self) -> Source:
        """The source ``of``."""
        return self.of


@dataclass(frozen=True, slots=True)
class InstanceDict(Step):
    """The ``__dict__`` of an instance: ``object.__getattribute__(of, "__dict__")``. Descriptors of the class
    are bypassed.
    """

    template = "{0.of.name}.__dict__"


@dataclass(frozen=True, slots=True)
class InstanceAttr(Step):
    """An entry of the instance dictionary: ``of.__dict__[attr]``."""

    attr: str
    """The name of the attribute."""
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class SlotAttr(Step):
    """A ``__slots__`` member, or an attribute that C code computes: ``owner.__dict__[attr].__get__(of)``."""

    owner: type
    """The class that defines the slot or attribute."""
    attr: str
    """The name of the slot or attribute."""
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class BuiltinAttr(Step):
    """``getattr(of, attr)``, for an attribute whose read runs no user code.

    Examples are attributes of functions, methods and partials, and ``grad`` of tensors.
    """

    attr: str
    """The name of the attribute."""
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class ClassAttr(Step):
    """The raw value of ``attr`` along the MRO of the class ``of``. No descriptor is called."""

    attr: str
    """The name of the attribute."""
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class TypeOf(Step):
    """``type(of)``."""

    template = "type({0.of.name})"


@dataclass(frozen=True, slots=True)
class Item(Step):
    """Item ``index`` of a list, tuple or deque, or of an instance of a subclass, read in C."""

    index: int
    """The position, counted from 0."""
    template = "{0.of.name}[{0.index}]"


@dataclass(frozen=True, slots=True)
class ItemAt(Step):
    """An item of a list, tuple or deque, read in C. Its index is the value of the source ``at``."""

    at: Source
    """The source of the index."""
    template = "{0.of.name}[{0.at.name}]"


@dataclass(frozen=True, slots=True)
class Key(Step):
    """The value of a constant key in a dict, or in an instance of a subclass, read in C."""

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
    """The ``index``-th value of a dict in iteration order. For keys that are not constants."""

    index: int
    """The position, counted from 0."""
    template = "list({0.of.name}.values())[{0.index}]"


@dataclass(frozen=True, slots=True)
class Upcoming(Step):
    """An upcoming item of an iterator: the item after ``index`` other items.

    The access does not advance the iterator.
    """

    index: int
    """The number of items that the iterator gives before this item."""

    def _named(self) -> str:
        return f"next({self.of.name})" if not self.index else f"next #{self.index} of {self.of.name}"


@dataclass(frozen=True, slots=True)
class Converted(Step):
    """``by(of)``: the value in another form. ``by`` is a C function that runs no Python code."""

    by: Callable[[object], object]
    """The C function, for example ``ContextVar.get``."""
    template = "{0.by.__name__}({0.of.name})"


@dataclass(frozen=True, slots=True)
class Cached(Step):
    """The result that ``of``, a ``functools.lru_cache`` function, holds for a key of its dictionary.

    The value is ``native.NOT_CACHED`` if the cache holds no result.
    """

    key: object = field(compare=False, repr=False)
    """The key that the cache makes from the arguments."""
    call: str
    """The arguments as text for messages."""
    at: int
    """The address of ``key``, by which records are compared. Equal keys have one key object."""

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

    The value is missing if ``n`` is not an integer.
    """

    scale: int
    """The factor."""
    offset: int
    """The summand."""

    def _named(self) -> str:
        shifted = f"({self.of.name} - {self.offset})" if self.offset else self.of.name
        return f"{shifted} / {self.scale}" if self.scale != 1 else shifted
