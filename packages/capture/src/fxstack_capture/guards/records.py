"""Guard records: what must hold for a compiled entry to be used again.

Records are written while tracing and compiled into one native tree at the end (``guards.tree``). They are
data: nothing here runs a check. ``words`` says what a record demands, for people.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy

from fxstack_capture.sources import Source


@dataclass(frozen=True, slots=True)
class Check:
    """What is demanded of one value."""


@dataclass(frozen=True, slots=True)
class TypeIs(Check):
    """``type(value) is cls``."""

    cls: type


@dataclass(frozen=True, slots=True)
class WordIs(Check):
    """An int that compiled code can compute with: its size is below 2**62. Symbolic numbers are words of 64 bits,
    Python's have no bounds.
    """


@dataclass(frozen=True, slots=True)
class IdentityIs(Check):
    """``value is obj``. The entry does not keep ``obj`` alive where it can be referred to weakly, and dies
    with it.
    """

    obj: object = field(compare=False)
    key: int
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Equals(Check):
    """Same type and equal: int, float (bit for bit; NaN equals NaN), complex, str, bytes, and tuples or
    frozensets of such.
    """

    value: object


@dataclass(frozen=True, slots=True)
class LengthIs(Check):
    """C-level length of a list, tuple, dict, set, frozenset, deque or a subclass."""

    length: int


@dataclass(frozen=True, slots=True, eq=False)
class KeysAre(Check):
    """A dict's keys in order: constants are compared by type and value, others by identity.

    With ``ordered=False`` the same for membership only. Two records are compared in the same way: neither that nor the
    hash of one runs ``__eq__`` or ``__hash__`` of a key, which may be the program's.
    """

    keys: tuple[object, ...]
    ordered: bool = True

    def _identity(self) -> tuple[object, ...]:
        plain = ((type(key), key if type(key) in _PLAIN_KEYS else id(key)) for key in self.keys)
        return self.ordered, *plain

    def __eq__(self, other: object) -> bool:
        return type(other) is KeysAre and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())


_PLAIN_KEYS = frozenset({str, int})


@dataclass(frozen=True, slots=True)
class HasKey(Check):
    """Whether a constant key is in a dict or set (C-level access)."""

    key: object
    present: bool


@dataclass(frozen=True, slots=True)
class MembersAre(Check):
    """Of an instance dictionary: no key is in ``absent``, and the values of ``empty`` are dicts without items.

    What every call of a module without hooks asks, in one record.
    """

    absent: tuple[str, ...]
    empty: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotUnset(Check):
    """The ``__slots__`` member ``owner.__dict__[attr]`` of the object holds nothing."""

    owner: type
    attr: str


@dataclass(frozen=True, slots=True)
class CellEmpty(Check):
    """A cell that holds nothing: its variable is not bound."""


@dataclass(frozen=True, slots=True)
class RangeIs(Check):
    """A range object with these three numbers."""

    start: int
    stop: int
    step: int


NOT_FOUND: Any = object()
"""In ``ClassUnchanged``: the class has no such attribute (one that is None is recorded as None)."""


@dataclass(frozen=True, slots=True)
class ClassUnchanged(Check):
    """Looking ``names`` up raw along the MRO of the class gives the recorded objects (``NOT_FOUND``: none).

    Checked by the class's version tag first; the names are compared only when the tag changed. ``mro``: the
    class and its bases in their order, where the program has asked for them; () where not.
    """

    names: tuple[str, ...]
    values: tuple[object, ...] = field(compare=False)
    mro: tuple[type, ...] = ()


@dataclass(frozen=True, slots=True)
class SubclassIs(Check):
    """What the abstract class ``cls`` says of a class, ``_abc._abc_subclasscheck(cls, value)``: registering a class changes it.

    Checked by the number of registrations in the process first; ``cls`` is asked again only where that moved.
    """

    cls: type = field(compare=False)
    key: int
    answer: bool


@dataclass(frozen=True, slots=True)
class TensorIs(Check):
    """Everything about a tensor that a graph is specialised on.

    ``sizes`` and ``strides`` hold None where the number is dynamic (its relations are ``ShapeHolds``).
    ``cls`` is the exact Python type; ``keyset`` the raw dispatch key set of the real tensor with the
    thread-local include/exclude sets NOT applied; ``device`` a torch.device; ``dtype`` a torch.dtype.
    """

    cls: type
    keyset: int
    dtype: object
    device: object
    layout: object
    requires_grad: bool
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...] | None
    storage_offset: int | None = None
    is_leaf: bool | None = None


@dataclass(frozen=True, slots=True)
class MarksWithin(Check):
    """Of each attribute ``names[i]`` of a tensor: it has none, or a set of dimensions that are all in ``dims[i]``.

    A tensor with fewer marks than the one that was compiled for is served by what was compiled.
    """

    names: tuple[str, ...]
    dims: tuple[frozenset[int], ...]


@dataclass(frozen=True, slots=True)
class SameObject(Check):
    """The guarded value is the very object found at ``other``."""

    other: Source


@dataclass(frozen=True, slots=True)
class AllDistinct(Check):
    """The objects found at these sources are pairwise different objects (the guard's own source is the
    first).
    """

    others: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class NoOverlap(Check):
    """The memory of the storages of the tensors at these sources and the guarded one is pairwise apart."""

    others: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class SharesStorage(Check):
    """The tensors at these sources and the guarded one are views of one storage."""

    others: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class ShapeHolds(Check):
    """A boolean sympy expression over integer (or float) symbols; each symbol is read from its source.

    The guard's own source is that of the first symbol. ``text`` is the expression in the user's names.
    """

    expr: sympy.Basic
    symbols: tuple[tuple[sympy.Symbol, Source], ...]
    text: str


@dataclass(frozen=True, slots=True)
class TorchStateIs(Check):
    """Global torch state: see ``torch_side.global_state.state.TorchState`` (grad mode, inference mode, autocast,
    defaults, modes...).
    """

    state: object


@dataclass(frozen=True, slots=True)
class Guard:
    """One demand on one source. ``stack`` holds the user's frames (file, line, function), innermost last."""

    source: Source
    check: Check
    stack: tuple[tuple[str, int, str], ...] = field(default=(), compare=False)


class GuardSet:
    """The guards of one trace, in order, without repeats. The only mutable thing here; owned by a
    ``Trace``.
    """

    def __init__(self) -> None:
        self._guards: dict[tuple[Source, Check], Guard] = {}

    def add(self, source: Source, check: Check, stack: tuple[tuple[str, int, str], ...] = ()) -> None:
        self._guards.setdefault((source, check), Guard(source, check, stack))

    def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
        return iter(self._guards.values())

    def __len__(self) -> int:
        return len(self._guards)
