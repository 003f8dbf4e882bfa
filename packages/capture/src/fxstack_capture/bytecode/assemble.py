"""Bytecode as a list of operations with symbolic jump targets, and back to a code object.

Resume functions are a user's code with another prologue and another layout of variables, so they are
edited at the level of single operations: everything that the compiler of the user's Python produced stays
as it is. The formats (wordcode with inline caches, location table, exception table) are those of CPython
3.11 to 3.14; see ``Objects/locations.md`` and ``Objects/exception_handling_notes.txt`` there.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from types import CodeType

Position = tuple[int | None, int | None, int | None, int | None]

NOWHERE: Position = (None, None, None, None)

_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_CACHE = dis.opmap["CACHE"]
# Two variables in one operation, four bits each: split, because another layout may need more bits.
_PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
}
# What the compiler has proved of the order of its own operations need not hold among others.
_PLAIN = {"LOAD_FAST_BORROW": "LOAD_FAST"}


@dataclass(slots=True, eq=False)
class Op:
    """One operation; ``target`` is where a jump goes.

    ``offset`` is its place (that of its first EXTENDED_ARG) in the code it was read from.
    """

    name: str
    arg: int = 0
    target: Op | None = None
    position: Position = NOWHERE
    offset: int = -1

    @property
    def opcode(self) -> int:
        return dis.opmap[self.name]


@dataclass(frozen=True, slots=True)
class Protected:
    """A range of the exception table: from ``first`` up to, not including, ``end`` (None: the end of the code)."""

    first: Op
    end: Op | None
    handler: Op
    depth: int
    lasti: bool


@dataclass(slots=True)
class Body:
    """The operations of a code object and its exception table."""

    ops: list[Op]
    protected: list[Protected] = field(default_factory=list)

    def at(self, offset: int) -> int:
        """Index of the operation that was read from byte ``offset``."""
        for index, op in enumerate(self.ops):
            if op.offset == offset:
                return index
        raise LookupError(f"no operation starts at offset {offset}")


def caches_of(opcode: int) -> int:
    """Inline cache units that follow an operation."""
    return int(_cache_entries[opcode])


def _cache_table() -> list[int]:
    table = vars(dis)["_inline_cache_entries"]
    if isinstance(table, dict):  # 3.13 keys it by name
        return [table.get(dis.opname[op], 0) for op in range(256)]
    return list(table)


_cache_entries = _cache_table()


# --- reading ---------------------------------------------------------------------------------------


def read(code: CodeType) -> Body:
    """Take a code object apart."""
    positions = list(code.co_positions())
    ops: list[Op] = []
    by_offset: dict[int, Op] = {}
    jumps: list[tuple[Op, int]] = []
    for start, offset, opcode, arg in _units(code.co_code):
        name = dis.opname[opcode]
        position = positions[offset // 2]
        if name in _PAIRS:
            first, second = _PAIRS[name]
            op = Op(first, arg >> 4, None, position, start)
            ops += [op, Op(second, arg & 15, None, position)]
        else:
            op = Op(_PLAIN.get(name, name), arg, None, position, start)
            ops.append(op)
        # Jumps aim at the EXTENDED_ARG in front of an operation.
        by_offset[start] = op
        if opcode in dis.hasjrel:
            after = offset + 2 + 2 * caches_of(opcode)
            jumps.append((op, after - 2 * arg if "BACKWARD" in name else after + 2 * arg))
    for op, where in jumps:
        op.target = by_offset[where]
    protected = [
        Protected(by_offset[start], by_offset.get(end), by_offset[handler], depth, lasti)
        for start, end, handler, depth, lasti in _parse_exception_table(code.co_exceptiontable)
    ]
    return Body(ops, protected)


def _units(code: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(start including EXTENDED_ARGs, offset, opcode, argument)."""
    extended = 0
    start: int | None = None
    offset = 0
    while offset < len(code):
        opcode, arg = code[offset], code[offset + 1] | extended
        if start is None:
            start = offset
        if opcode == _EXTENDED_ARG:
            extended = arg << 8
            offset += 2
            continue
        yield start, offset, opcode, arg
        offset += 2 + 2 * caches_of(opcode)
        extended, start = 0, None


def _varints(data: bytes) -> Iterator[int]:
    stream = iter(data)
    for byte in stream:
        value = byte & 63
        while byte & 64:
            byte = next(stream)  # noqa: PLW2901 - continuation of the same number
            value = value << 6 | byte & 63
        yield value


def _parse_exception_table(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    numbers = _varints(table)
    for start in numbers:
        length, handler, depth = next(numbers), next(numbers), next(numbers)
        yield start * 2, (start + length) * 2, handler * 2, depth >> 1, bool(depth & 1)


# --- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assembled:
    """The byte strings of a code object; ``origin`` maps new offsets to offsets in the code read."""

    code: bytes
    linetable: bytes
    exceptiontable: bytes
    origin: dict[int, int]


def write(body: Body, first_line: int) -> Assembled:
    """Put operations together; the sizes of jumps are found by repetition until they are stable."""
    offsets = _layout(body.ops)
    pieces: list[bytes] = []
    runs: list[tuple[int, Position]] = []
    origin: dict[int, int] = {}
    for op in body.ops:
        arg = _encoded_arg(op, offsets)
        count = offsets.sizes[op] // 2 - 1 - caches_of(op.opcode)
        prefix = [arg >> 8 * place & 255 for place in range(count, 0, -1)]
        code = b"".join(bytes((_EXTENDED_ARG, byte)) for byte in prefix)
        code += bytes((op.opcode, arg & 255)) + bytes((_CACHE, 0)) * caches_of(op.opcode)
        pieces.append(code)
        runs.append((len(code) // 2, op.position))
        if op.offset >= 0:
            origin[offsets[op]] = op.offset
    blob = b"".join(pieces)
    # CPython looks entries up in the order of their ranges.
    protected = sorted(body.protected, key=lambda entry: offsets[entry.first])
    table = b"".join(_exception_entry(entry, offsets, len(blob)) for entry in protected)
    return Assembled(blob, _linetable(runs, first_line), table, origin)


def _size(op: Op, arg: int) -> int:
    prefixes = (max(arg.bit_length(), 1) - 1) // 8
    return 2 * (prefixes + 1 + caches_of(op.opcode))


class _Offsets(dict["Op", int]):
    """Start of every operation, with the sizes that were assumed (a jump may be larger than it need be)."""

    def __init__(self, offsets: dict[Op, int], sizes: dict[Op, int]) -> None:
        super().__init__(offsets)
        self.sizes = sizes


def _layout(ops: list[Op]) -> _Offsets:
    sizes = {op: _size(op, 0 if op.target else op.arg) for op in ops}
    while True:
        offsets = _Offsets({}, sizes)
        where = 0
        for op in ops:
            offsets[op] = where
            where += sizes[op]
        grown = False
        for op in ops:
            if op.target is not None:
                size = _size(op, _encoded_arg(op, offsets))
                if size > sizes[op]:
                    sizes[op] = size
                    grown = True
        if not grown:
            return offsets


def _encoded_arg(op: Op, offsets: _Offsets) -> int:
    if op.target is None:
        return op.arg
    distance = (offsets[op.target] - offsets[op] - offsets.sizes[op]) // 2
    if "BACKWARD" in op.name:
        distance = -distance
    if distance < 0:
        raise ValueError(f"{op.name} jumps in the wrong direction")
    return distance


def _exception_entry(entry: Protected, offsets: dict[Op, int], length: int) -> bytes:
    start = offsets[entry.first]
    end = length if entry.end is None else offsets[entry.end]
    numbers = (start // 2, (end - start) // 2, offsets[entry.handler] // 2, entry.depth << 1 | entry.lasti)
    first, *rest = (_big_endian_varint(number) for number in numbers)
    return bytes((first[0] | 128,)) + first[1:] + b"".join(rest)


def _big_endian_varint(value: int) -> bytes:
    groups = [value & 63]
    value >>= 6
    while value:
        groups.insert(0, value & 63 | 64)
        value >>= 6
    return bytes(groups)


def _little_endian_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 64:
        out.append(64 | value & 63)
        value >>= 6
    out.append(value)
    return bytes(out)


def _signed_varint(value: int) -> bytes:
    return _little_endian_varint((-value << 1 | 1) if value < 0 else value << 1)


def linetable_of(code: CodeType, first_line: int) -> bytes:
    """The location table of ``code`` for when its first line is said to be ``first_line``."""
    runs = ((sum(1 for _ in run), position) for position, run in groupby(code.co_positions()))
    return _linetable(runs, first_line)


def _linetable(runs: Iterable[tuple[int, Position]], first_line: int) -> bytes:
    out = bytearray()
    previous = first_line
    for units, (line, end_line, column, end_column) in runs:
        while units > 0:
            part = min(units, 8)
            units -= part  # noqa: PLW2901 - the rest of the same run
            if line is None:
                out.append(128 | 15 << 3 | part - 1)
                continue
            whole = None not in (end_line, column, end_column)
            out.append(128 | (14 if whole else 13) << 3 | part - 1)
            out += _signed_varint(line - previous)
            previous = line
            if end_line is not None and column is not None and end_column is not None:
                out += _little_endian_varint(end_line - line)
                out += _little_endian_varint(column + 1) + _little_endian_varint(end_column + 1)
    return bytes(out)
