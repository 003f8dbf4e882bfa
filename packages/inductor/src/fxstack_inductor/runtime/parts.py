"""Split a C file into parts; each part can be compiled with only the text in front of the first part.

The whole file is valid C too. On a machine with several processors, a compiler per part compiles a large
file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

PART = "\n/* ---- a part of its own ---- */\n"
LATER_PART = "#define FXSTACK_LATER_PART\n"
"""Put in front of all parts but the first part, which defines the shared variables."""
PART_CHARACTERS = 24_000
"""Characters of a part: about 0.3 seconds of compilation, of which the common head takes up to 0.06."""
MAX_PARTS = 16
"""The largest number of parts; a longer file gets longer parts."""


def in_parts(head: str, pieces: Sequence[str]) -> str:
    """Return ``head`` and the pieces of C, in parts of which only the last may be shorter than ``PART_CHARACTERS``."""
    return "".join([head, *(PART + "\n\n".join(group) + "\n" for group in _groups(pieces))])


def _groups(pieces: Sequence[str]) -> Iterator[list[str]]:
    """Yield groups of neighbouring pieces, each of about ``PART_CHARACTERS``."""
    enough = max(PART_CHARACTERS, sum(map(len, pieces)) // MAX_PARTS)
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
    """Return the files to compile instead of ``text``, longest first; a short text stays one file."""
    head, *parts = text.split(PART)
    if len(parts) < 2 or len(text) - len(head) < 2 * PART_CHARACTERS:
        return [text]
    files = [(LATER_PART if k else "") + head + part for k, part in enumerate(parts)]
    return sorted(files, key=len, reverse=True)
