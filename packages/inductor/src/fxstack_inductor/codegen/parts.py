"""A C file in parts, each of which can be compiled with nothing but what stands in front of the first.

The file as a whole is C too. Where there are several processors, and enough to compile, a compiler for each takes a part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PART = "\n/* ---- a part of its own ---- */\n"
LATER = "#define FXSTACK_LATER_PART\n"
"""In front of all parts but the first, which defines the variables that they share."""
ENOUGH = 24_000
"""Characters of a part, about 0.3 seconds of a compiler, which takes up to 0.06 for what stands in front of all parts."""
MOST = 16
"""Files of more parts have longer ones."""


def in_parts(head: str, pieces: Sequence[str]) -> str:
    """``head`` and the pieces of C, in parts of which only the last is shorter than ``ENOUGH``."""
    return "".join([head, *(PART + "\n\n".join(group) + "\n" for group in _groups(pieces))])


def _groups(pieces: Sequence[str]) -> Iterator[list[str]]:
    enough = max(ENOUGH, sum(map(len, pieces)) // MOST)
    group: list[str] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += len(piece)
        if size >= enough:
            yield group
            group, size = [], 0
    if group:
        yield group


def parts_of(text: str) -> list[str]:
    """The files to compile instead of ``text``, the longest first: one, where it is too short for several."""
    head, *parts = text.split(PART)
    if len(parts) < 2 or len(text) - len(head) < 2 * ENOUGH:
        return [text]
    found = [(LATER if k else "") + head + part for k, part in enumerate(parts)]
    return sorted(found, key=len, reverse=True)
