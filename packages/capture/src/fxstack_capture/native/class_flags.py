"""Type flags of a class (``Include/object.h`` of CPython)."""

from __future__ import annotations

_IMMUTABLE_TYPE = 1 << 8
_HEAP_TYPE = 1 << 9
_FLAGS = type.__dict__["__flags__"].__get__


def flags_of(cls: type) -> int:
    """Return ``tp_flags`` of ``cls``. A ``__getattribute__`` of the metaclass is not called."""
    result: int = _FLAGS(cls)
    return result


def is_heap_type(cls: type) -> bool:
    """Return whether ``cls`` was created at run time, as by a ``class`` statement, and is no static type of C code."""
    return bool(flags_of(cls) & _HEAP_TYPE)


def is_immutable(cls: type) -> bool:
    """Return whether the attributes of ``cls`` cannot be set, so that reads of them need no guards."""
    return bool(flags_of(cls) & _IMMUTABLE_TYPE)
