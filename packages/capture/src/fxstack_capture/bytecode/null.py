"""The marker of a stack slot or local slot that is a null pointer in CPython."""

from __future__ import annotations

from typing import Final


class Null:
    """The type of ``NULL``: an empty stack slot next to a callable, or an unbound local variable."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL"


NULL: Final = Null()
