"""Type flags of a class (``Include/object.h`` of CPython)."""

from __future__ import annotations

_IMMUTABLE_TYPE = 1 << 8
_HEAP_TYPE = 1 << 9
_FLAGS = type.__dict__["__flags__"].__get__


def flags_of(cls: type) -> int:
    """Return ``tp_flags`` of ``cls``. No ``__getattribute__`` of the metaclass is called."""
    result: int = _FLAGS(cls)
    return result


def is_heap_type(cls: type) -> bool:
    """Return whether ``cls`` was created at run time, for example by a ``class`` statement. Static types of C
    code were not.
    """
    return bool(flags_of(cls) & _HEAP_TYPE)


def is_immutable(cls: type) -> bool:
    """Return whether the attributes of ``cls`` cannot be set. Reads of them then need no guards."""
    return bool(flags_of(cls) & _IMMUTABLE_TYPE)
