"""Markers in stack slots and local slots in which CPython has a null pointer."""

from __future__ import annotations

from typing import Final


class Null:
    """The type of ``NULL``: an empty stack slot next to a callable, or an unbound local variable."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL"


NULL: Final = Null()
