"""The semilattice of the observed values of one number (a size, a stride, an offset, an int or a float).

::

    unset ⊔ x = x        x ⊔ x = x        x ⊔ y = dynamic        dynamic ⊔ x = dynamic

``unset`` is ``None``. A value is a number, or ``Inferred(dim)`` for a stride that is the product of size and
stride of another dimension. ``Inferred(dim)`` stays equal when the sizes change. The join is associative,
commutative and idempotent, so observations of several calls, processes or ranks can be merged in any order.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Dynamic(enum.Enum):
    """The top element: more than one value has been seen."""

    DYNAMIC = "dynamic"


DYNAMIC = Dynamic.DYNAMIC


@dataclass(frozen=True, slots=True)
class Inferred:
    """A stride equal to the stride of dimension ``dim`` times its size."""

    dim: int


Seen = int | float | Inferred | Dynamic


def join(a: Seen | None, b: Seen | None) -> Seen | None:
    """Return the least upper bound of ``a`` and ``b``."""
    if a is None:
        return b
    if b is None or same(a, b):
        return a
    return DYNAMIC


def same(a: Seen, b: Seen) -> bool:
    """Whether type and value are equal. NaN equals itself, and 0.0 differs from -0.0."""
    return type(a) is type(b) and (repr(a) == repr(b) if isinstance(a, float) else a == b)
