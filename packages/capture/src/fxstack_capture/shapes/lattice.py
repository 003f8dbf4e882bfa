"""The semilattice of what has been seen of one number (a size, a stride, an offset, an int or float).

::

    unset ⊔ x = x        x ⊔ x = x        x ⊔ y = dynamic        dynamic ⊔ x = dynamic

``unset`` is ``None``. A value is a number, or ``Inferred(dim)`` for a stride that is the product of size and
stride of another dimension: it stays itself while the sizes change. The join is associative, commutative and
idempotent, so observations of several calls, processes or ranks may be merged in any order.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Dynamic(enum.Enum):
    """The top: more than one value has been seen."""

    DYNAMIC = "dynamic"


DYNAMIC = Dynamic.DYNAMIC


@dataclass(frozen=True, slots=True)
class Inferred:
    """A stride equal to the stride of dimension ``dim`` times its size."""

    dim: int


Seen = int | float | Inferred | Dynamic


def join(a: Seen | None, b: Seen | None) -> Seen | None:
    """The least element above both."""
    if a is None:
        return b
    if b is None or same(a, b):
        return a
    return DYNAMIC


def same(a: Seen, b: Seen) -> bool:
    """Equal in type and value; NaN equals itself, and 0.0 differs from -0.0."""
    return type(a) is type(b) and (repr(a) == repr(b) if isinstance(a, float) else a == b)
