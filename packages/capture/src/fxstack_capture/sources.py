"""Where a pre-existing value was found: frozen provenance records.

A source is the path from what a frame can see when it starts (arguments, free variables, globals, pinned
objects) to a value. From it come the native guard path, the expression that reloads the value in emitted
code, and the value's name in messages. A source is attached when a value enters the trace and never
changes.

Every class states one *primitive* access: none of them runs user code when it is followed
(``InstanceDict`` + ``Key`` rather than ``getattr``), so that guards and reloads have no side effects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import ClassVar


@cache
def _compared(cls: type) -> tuple[str, ...]:
    """Names of the fields that make a record of ``cls`` what it is."""
    return tuple(f.name for f in fields(cls) if f.compare)


class _Remembering:
    """Remembers its hash and its name: sources are keys of every table of a trace, and a path is as long as a model is deep."""

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
    """Base of all sources; ``name`` is a Python-like expression for people, made of ``template``."""

    template: ClassVar[str] = "a {0.__class__.__name__}"

    @property
    def base(self) -> Source | None:
        return None

    @property
    def name(self) -> str:
        """The expression; made once."""
        try:
            return self._name
        except AttributeError:
            object.__setattr__(self, "_name", self._named())
            return self._name

    def _named(self) -> str:
        return self.template.format(self)


# --- roots ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Local(Source):
    """An argument of the root frame, as it is when the frame starts."""

    local: str
    template = "{0.local}"


@dataclass(frozen=True, slots=True)
class Free(Source):
    """The content of a free variable of the root frame."""

    local: str
    template = "{0.local}"


@dataclass(frozen=True, slots=True)
class FreeCell(Source):
    """The cell object itself of a free variable of the root frame."""

    local: str
    template = "<cell {0.local}>"


@dataclass(frozen=True, slots=True)
class Globals(Source):
    """The globals dictionary of the root frame."""

    template = "globals()"


@dataclass(frozen=True, slots=True)
class Pinned(Source):
    """A definite object, kept alive by the compiled entry: a class, a module's globals, a function.

    Compared by identity of the object.
    """

    value: object = field(compare=False, hash=False, repr=False)
    label: str
    key: int = 0
    template = "{0.label}"


def pinned(value: object, label: str) -> Pinned:
    return Pinned(value, label, id(value))


@dataclass(frozen=True, slots=True)
class Drawn(Source):
    """What the ``index``-th call that the frame makes before everything else returns; no guard can speak of it."""

    index: int
    label: str
    template = "{0.label} #{0.index}"


# --- steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step(Source):
    """A source reached from another by one primitive access."""

    of: Source

    @property
    def base(self) -> Source:
        return self.of


@dataclass(frozen=True, slots=True)
class InstanceDict(Step):
    """``object.__getattribute__(of, "__dict__")`` of an instance, class-level descriptors bypassed."""

    template = "{0.of.name}.__dict__"


@dataclass(frozen=True, slots=True)
class InstanceAttr(Step):
    """An entry of the instance dictionary: ``of.__dict__[attr]``."""

    attr: str
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class SlotAttr(Step):
    """A ``__slots__`` member or C-level getset of ``owner``: ``owner.__dict__[attr].__get__(of)``."""

    owner: type
    attr: str
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class BuiltinAttr(Step):
    """``getattr(of, attr)`` where it is known to run no user code (functions, methods, partials, tensors' ``grad``)."""

    attr: str
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class ClassAttr(Step):
    """``attr`` looked up raw (no descriptor call) along the MRO of the class ``of``."""

    attr: str
    template = "{0.of.name}.{0.attr}"


@dataclass(frozen=True, slots=True)
class TypeOf(Step):
    """``type(of)``."""

    template = "type({0.of.name})"


@dataclass(frozen=True, slots=True)
class Item(Step):
    """Item ``index`` of a list, tuple or deque (or a subclass), by the C-level access."""

    index: int
    template = "{0.of.name}[{0.index}]"


@dataclass(frozen=True, slots=True)
class ItemAt(Step):
    """The item of a list, tuple or deque whose index is found at ``at``, by the C-level access."""

    at: Source
    template = "{0.of.name}[{0.at.name}]"


@dataclass(frozen=True, slots=True)
class Key(Step):
    """Value of a constant key in a dict (or a subclass), by the C-level access."""

    key: object
    template = "{0.of.name}[{0.key!r}]"


@dataclass(frozen=True, slots=True)
class KeyAt(Step):
    """The ``index``-th key of a dict, set or frozenset in iteration order."""

    index: int
    template = "list({0.of.name})[{0.index}]"


@dataclass(frozen=True, slots=True)
class ValueAt(Step):
    """The ``index``-th value of a dict in iteration order (for keys that are not constants)."""

    index: int
    template = "list({0.of.name}.values())[{0.index}]"


@dataclass(frozen=True, slots=True)
class Upcoming(Step):
    """What an iterator will give after ``index`` others; it is not advanced."""

    index: int

    def _named(self) -> str:
        return f"next({self.of.name})" if not self.index else f"next #{self.index} of {self.of.name}"


@dataclass(frozen=True, slots=True)
class Converted(Step):
    """``by(of)``: another form of the same value, made by a C function that runs no Python code."""

    by: Callable[[object], object]
    template = "{0.by.__name__}({0.of.name})"


@dataclass(frozen=True, slots=True)
class Cached(Step):
    """What the ``functools.lru_cache`` ``of`` holds for a key of its dictionary; ``native.NOT_CACHED`` where it holds nothing."""

    key: object = field(compare=False, repr=False)
    call: str
    at: int
    """The address of ``key``, which its records compare: there is one key object for equal keys."""

    template = "{0.of.name}({0.call})"


@dataclass(frozen=True, slots=True)
class Cell(Step):
    """The content of a cell object."""

    template = "{0.of.name}.cell_contents"


@dataclass(frozen=True, slots=True)
class Size(Step):
    """``of.size(dim)`` of a tensor."""

    dim: int
    template = "{0.of.name}.size({0.dim})"


@dataclass(frozen=True, slots=True)
class Stride(Step):
    """``of.stride(dim)`` of a tensor."""

    dim: int
    template = "{0.of.name}.stride({0.dim})"


@dataclass(frozen=True, slots=True)
class StorageOffset(Step):
    """``of.storage_offset()`` of a tensor."""

    template = "{0.of.name}.storage_offset()"


@dataclass(frozen=True, slots=True)
class Affine(Step):
    """The number ``n`` for which ``scale * n + offset`` is the number ``of``; not there where it is no whole number."""

    scale: int
    offset: int

    def _named(self) -> str:
        shifted = f"({self.of.name} - {self.offset})" if self.offset else self.of.name
        return f"{shifted} / {self.scale}" if self.scale != 1 else shifted
