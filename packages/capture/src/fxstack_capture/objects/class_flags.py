"""What CPython's flags say of a class (``Include/object.h``)."""

from __future__ import annotations

_IMMUTABLE_TYPE = 1 << 8
_HEAP_TYPE = 1 << 9
_FLAGS = type.__dict__["__flags__"].__get__


def flags_of(cls: type) -> int:
    """Its ``tp_flags``, whatever a ``__getattribute__`` of its metaclass says."""
    result: int = _FLAGS(cls)
    return result


def is_heap_type(cls: type) -> bool:
    """Whether it was made at run time, as ``class`` statements do; classes that C code lays out statically are not."""
    return bool(flags_of(cls) & _HEAP_TYPE)


def is_immutable(cls: type) -> bool:
    """Whether its attributes cannot be set."""
    return bool(flags_of(cls) & _IMMUTABLE_TYPE)
