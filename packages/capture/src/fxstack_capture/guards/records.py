"""Guard records: the conditions under which a compiled entry may be used again.

The trace writes the records. At the end of the trace, ``guards.tree`` compiles the records into one native
tree. Records are data: this module runs no check. ``words`` describes the condition of a record for messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy

from fxstack_capture.sources import Source


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on one value."""


@dataclass(frozen=True, slots=True)
class TypeIs(Check):
    """``type(value) is cls``."""

    cls: type


@dataclass(frozen=True, slots=True)
class WordIs(Check):
    """An int whose absolute value is below 2**62, so that compiled code can compute with the int.

    Symbolic numbers have 64 bits. Python's ints have no bounds.
    """


@dataclass(frozen=True, slots=True)
class IdentityIs(Check):
    """``value is obj``.

    If ``obj`` supports weak references, the entry does not keep ``obj`` alive and dies with ``obj``.
    """

    obj: object = field(compare=False)
    key: int
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Equals(Check):
    """Same type and equal value.

    The value is an int, float, complex, str or bytes, or a tuple or frozenset of such values. Floats are
    compared bit by bit, so that NaN equals NaN.
    """

    value: object


@dataclass(frozen=True, slots=True)
class LengthIs(Check):
    """C-level length of a list, tuple, dict, set, frozenset, deque or a subclass."""

    length: int


@dataclass(frozen=True, slots=True, eq=False)
class KeysAre(Check):
    """The keys of a dictionary in order. Constants are compared by type and value, other keys by identity.

    With ``ordered=False`` the order is not compared. Two records are compared in the same way. Neither the
    comparison nor the hash of a record runs ``__eq__`` or ``__hash__`` of a key, since these methods may be
    the program's.
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
    """Whether a constant key is in a dictionary or set (C-level access)."""

    key: object
    present: bool


@dataclass(frozen=True, slots=True)
class MembersAre(Check):
    """No key of an instance dictionary is in ``absent``, and the values of ``empty`` are empty dicts.

    The record combines the guards that every call of a module without hooks needs.
    """

    absent: tuple[str, ...]
    empty: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotUnset(Check):
    """The ``__slots__`` member ``owner.__dict__[attr]`` of the object is unset."""

    owner: type
    attr: str


@dataclass(frozen=True, slots=True)
class CellEmpty(Check):
    """The cell is empty: its variable is unbound."""


@dataclass(frozen=True, slots=True)
class RangeIs(Check):
    """A range object with these three numbers."""

    start: int
    stop: int
    step: int


NOT_FOUND: Any = object()
"""The value in ``ClassUnchanged`` of an attribute that the class does not have.

An attribute whose value is None is recorded as None.
"""


@dataclass(frozen=True, slots=True)
class ClassUnchanged(Check):
    """Raw lookups of ``names`` along the MRO give the recorded objects (``NOT_FOUND``: no attribute).

    The check compares the class's version tag first, and the names only if the tag changed. ``mro``: the
    class and its bases in MRO order, if the program has asked for them, else ().
    """

    names: tuple[str, ...]
    values: tuple[object, ...] = field(compare=False, repr=False)
    mro: tuple[type, ...] = ()


@dataclass(frozen=True, slots=True)
class SubclassIs(Check):
    """The answer of the abstract class ``cls`` for a class: ``_abc._abc_subclasscheck(cls, value)``.

    Registering a class with ``cls`` changes the answer. The check compares the number of registrations in the
    process first, and asks ``cls`` only if the number changed.
    """

    cls: type = field(compare=False)
    key: int
    answer: bool


@dataclass(frozen=True, slots=True)
class TensorIs(Check):
    """The facts about a tensor on which a graph is specialised.

    ``sizes`` and ``strides`` hold None for a dynamic number, whose relations are ``ShapeHolds``. ``cls`` is
    the exact Python type. ``keyset`` is the raw dispatch key set of the real tensor, without the thread-local
    include and exclude sets. ``device`` is a torch.device, ``dtype`` a torch.dtype.
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
    """Each attribute ``names[i]`` of a tensor is missing, or a set of dimensions that are all in ``dims[i]``.

    Therefore a tensor with fewer marks than the tensor of the trace can use the compiled entry.
    """

    names: tuple[str, ...]
    dims: tuple[frozenset[int], ...]


@dataclass(frozen=True, slots=True)
class SameObject(Check):
    """The guarded value is the same object as the object at ``other``."""

    other: Source


@dataclass(frozen=True, slots=True)
class AllDistinct(Check):
    """The objects at the guard's own source and at the sources ``others`` are pairwise different."""

    others: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class NoOverlap(Check):
    """The storages of the guarded tensor and of the tensors at ``others`` are pairwise disjoint memory."""

    others: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class SharesStorage(Check):
    """The guarded tensor and the tensors at ``others`` are views of one storage."""

    others: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class ShapeHolds(Check):
    """A boolean sympy expression over integer (or float) symbols. Each symbol is read from its source.

    The guard's own source is the source of the first symbol. ``text`` is the expression in the user's names.
    """

    expr: sympy.Basic
    symbols: tuple[tuple[sympy.Symbol, Source], ...]
    text: str


@dataclass(frozen=True, slots=True)
class TorchStateIs(Check):
    """Torch's global state: grad mode, inference mode, autocast, defaults, modes and so on.

    ``state`` is a ``torch_state.TorchState``.
    """

    state: object


@dataclass(frozen=True, slots=True)
class Guard:
    """One check on one source. ``stack`` holds the user's frames (file, line, function), innermost last."""

    source: Source
    check: Check
    stack: tuple[tuple[str, int, str], ...] = field(default=(), compare=False)


class GuardSet:
    """The guards of one trace, in order, without duplicates. A ``Trace`` owns the set.

    ``GuardSet`` is the only mutable class of this module.
    """

    def __init__(self) -> None:
        self._guards: dict[tuple[Source, Check], Guard] = {}

    def add(self, source: Source, check: Check, stack: tuple[tuple[str, int, str], ...] = ()) -> None:
        self._guards.setdefault((source, check), Guard(source, check, stack))

    def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
        return iter(self._guards.values())

    def __len__(self) -> int:
        return len(self._guards)
