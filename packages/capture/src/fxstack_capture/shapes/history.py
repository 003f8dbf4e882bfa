"""The values that the traces of one code object have seen: a map from keys to elements of a semilattice.

An element of the semilattice says what has been observed of one number (a size, a stride, an offset, an int
or a float)::

    unset ⊔ x = x        x ⊔ x = x        x ⊔ y = dynamic        dynamic ⊔ x = dynamic

``unset`` is ``None``. A value is a number, or ``Inferred(dim)``. ``Inferred(dim)`` is a stride that equals
size times stride of dimension ``dim``; it stays equal when the sizes change. The join is associative,
commutative and idempotent. Therefore observations of several calls, processes or ranks can be merged in any
order.

Two histories are joined key by key. A *key* identifies a number, for example dimension 0 of the tensor ``x``
with two dimensions. The same dimension of a tensor with another rank has another key.
"""

from __future__ import annotations

import enum
import json
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fxstack_capture.sources import Source


class Dynamic(enum.Enum):
    """The top element: more than one value has been seen."""

    DYNAMIC = "dynamic"


DYNAMIC = Dynamic.DYNAMIC
"""The only element of ``Dynamic``."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """A stride that equals the stride of dimension ``dim`` times the size of this dimension."""

    dim: int


Seen = int | float | Inferred | Dynamic
"""An element of the semilattice other than ``unset``."""


def join(a: Seen | None, b: Seen | None) -> Seen | None:
    """Return the least upper bound of ``a`` and ``b``."""
    if a is None:
        return b
    if b is None or same(a, b):
        return a
    return DYNAMIC


def same(a: Seen, b: Seen) -> bool:
    """Whether ``a`` and ``b`` have the same type and value. NaN equals itself, and 0.0 differs from -0.0."""
    return type(a) is type(b) and (repr(a) == repr(b) if isinstance(a, float) else a == b)


def size_of(source: Source, rank: int, dim: int) -> str:
    """Return the key of the size of a dimension, for example ``x size 0/2`` for dimension 0 of a matrix ``x``."""
    return f"{source.name} size {dim}/{rank}"


def stride_of(source: Source, rank: int, dim: int) -> str:
    """Return the key of the stride of a dimension, for example ``x stride 0/2``."""
    return f"{source.name} stride {dim}/{rank}"


def offset_of(source: Source) -> str:
    """Return the key of a storage offset, for example ``x offset``."""
    return f"{source.name} offset"


def number_of(source: Source) -> str:
    """Return the key of an int or float, for example ``scale number``."""
    return f"{source.name} number"


class FrameHistory:
    """The observations of one code object.

    The driver keeps the history from trace to trace. ``policy`` uses it to decide which numbers become
    symbolic.
    """

    def __init__(self, values: Mapping[str, Seen] | None = None) -> None:
        self._values: dict[str, Seen] = dict(values or {})
        """The elements by key."""
        self._objects: dict[str, Callable[[], object]] = {}
        """Weak references to the first object that was seen at each source, for ``is_another``."""

    def observe(self, key: str, value: Seen) -> Seen:
        """Join ``value`` into the element at ``key``, and return the new element.

        The new element is ``DYNAMIC`` if two values have been seen. Called when a trace plans the number.
        """
        before = self._values.get(key)
        joined = value if before is None else join(before, value)
        assert joined is not None
        self._values[key] = joined
        return joined

    def get(self, key: str) -> Seen | None:
        """Return the element at ``key``, or None if no trace has seen the number."""
        return self._values.get(key)

    def is_another(self, source: Source, obj: object) -> bool:
        """Whether an earlier trace found an object other than ``obj`` at ``source``.

        If so, the caller guards properties of the object, because an identity guard would fail in the next
        call.
        """
        try:
            reference: Callable[[], object] = weakref.ref(obj)
        except TypeError:  # instances of the class do not support weak references
            return False
        return self._objects.setdefault(source.name, reference)() is not obj

    def merged(self, other: FrameHistory) -> FrameHistory:
        """Return the join of two histories, for example of two processes or ranks. Neither history changes."""
        result = FrameHistory(self._values)
        for key, value in other._values.items():
            result.observe(key, value)
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrameHistory) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> str:
        """Return the history as canonical text: equal histories give equal texts."""
        return json.dumps({key: _encode(v) for key, v in sorted(self._values.items())})

    @staticmethod
    def from_json(text: str) -> FrameHistory:
        """Return the history from a text of ``to_json``. Raises ValueError for any other text."""
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("a shape profile is a JSON object from keys to values")  # noqa: TRY004
        return FrameHistory({key: _decode(value) for key, value in data.items()})


def _encode(value: Seen) -> object:
    """Return an element as a JSON value."""
    if value is DYNAMIC:
        return "dynamic"
    return {"inferred": value.dim} if isinstance(value, Inferred) else value


def _decode(value: object) -> Seen:
    """Return the element from a value of ``_encode``. Raises ValueError for any other value."""
    match value:
        case "dynamic":
            return DYNAMIC
        case {"inferred": int(dim)}:
            return Inferred(dim)
        case bool():
            pass
        case int() | float():
            return value
    raise ValueError(f"not a value of a shape profile: {value!r}")
