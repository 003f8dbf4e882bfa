"""What CPython's flags say of a class (``Include/object.h``)."""

from __future__ import annotations

_IMMUTABLE_TYPE = 1 << 8
_HEAP_TYPE = 1 << 9


def is_heap_type(cls: type) -> bool:
    """Whether it was made at run time, as ``class`` statements do; classes that C code lays out statically are not."""
    return bool(cls.__flags__ & _HEAP_TYPE)


def is_immutable(cls: type) -> bool:
    """Whether its attributes cannot be set."""
    return bool(cls.__flags__ & _IMMUTABLE_TYPE)
