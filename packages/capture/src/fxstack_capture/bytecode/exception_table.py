"""Read and write ``co_exceptiontable``: the protected ranges of instructions and their handlers.

The format is described in CPython's ``Objects/exception_handling_notes.txt``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType


@dataclass(frozen=True, slots=True)
class Region:
    """One entry of the table: an exception at an offset from ``start`` to ``end`` (exclusive) continues at
    ``target``.

    ``depth`` stack values stay. If ``lasti``, the offset of the instruction that raised is pushed below the
    exception.
    """

    start: int
    end: int
    target: int
    depth: int
    lasti: bool

    def encoded(self) -> bytes:
        """Return the bytes of this entry in ``co_exceptiontable``. Bit 7 marks the first byte."""
        numbers = (self.start // 2, (self.end - self.start) // 2, self.target // 2)
        entry = b"".join(map(_encoded_varint, (*numbers, self.depth << 1 | self.lasti)))
        return bytes((entry[0] | 128,)) + entry[1:]


def exception_regions(code: CodeType) -> tuple[Region, ...]:
    """Return the protected ranges of a code object, ordered by start. The ranges do not overlap."""
    return tuple(_regions(iter(code.co_exceptiontable)))


def _regions(table: Iterator[int]) -> Iterator[Region]:
    """Yield the entries of an exception table. ``table`` yields the remaining bytes."""
    for first in table:
        start = _varint(first, table) * 2
        length = _varint(next(table), table) * 2
        target = _varint(next(table), table) * 2
        depth_and_lasti = _varint(next(table), table)
        yield Region(start, start + length, target, depth_and_lasti >> 1, bool(depth_and_lasti & 1))


def _varint(first: int, table: Iterator[int]) -> int:
    """Read a number in groups of six bits, the most significant group first. Bit 6 of a byte says that more
    groups follow.
    """
    value = first & 63
    byte = first
    while byte & 64:
        byte = next(table)
        value = value << 6 | byte & 63
    return value


def _encoded_varint(value: int) -> bytes:
    """Encode a number for the exception table: six bits in each byte, the highest bits first."""
    groups = [value & 63]
    value >>= 6
    while value:
        groups.insert(0, value & 63 | 64)
        value >>= 6
    return bytes(groups)
