"""Marks that stand in stack slots and local slots where CPython has a null pointer."""

from __future__ import annotations

from typing import Final


class Null:
    """The type of ``NULL``: an empty stack slot beside a callable, or an unbound local variable."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL"


NULL: Final = Null()
