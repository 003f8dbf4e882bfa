"""Read a code object as a list of operations with symbolic jump targets, and write such a list as a code
object.

A resume function is a user's code with a new prologue and a new layout of variables. All other operations
stay as the compiler of the user's Python produced them. The formats (wordcode with inline caches, location
table, exception table) are those of CPython 3.11 to 3.14. They are described in ``Objects/locations.md`` and
``Objects/exception_handling_notes.txt`` of CPython.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, groupby, product
from types import CodeType

from fxstack_capture.bytecode.exception_table import Region, exception_regions
from fxstack_capture.bytecode.units import CACHE, EXTENDED_ARG, caches_of, units
from fxstack_interchange.bytecode import Kind, kind_of, opcodes_of

Position = tuple[int | None, int | None, int | None, int | None]

NOWHERE: Position = (None, None, None, None)

# A borrowed reference relies on the order of operations, which this package changes. The plain load needs no
# order.
_PLAIN = {"LOAD_FAST_BORROW": "LOAD_FAST"}
# An operation on two variables has four bits for each slot. It is split, because a slot of the new layout may
# need more bits.
_PAIRS = {
    f"{first}_{second}": (_PLAIN.get(first, first), _PLAIN.get(second, second))
    for first, second in product(opcodes_of(Kind.READS_LOCAL | Kind.BINDS_LOCAL), repeat=2)
}


@dataclass(slots=True, eq=False)
class Op:
    """One operation: the instruction ``name`` with the argument ``arg``.

    ``target`` is the operation to which a jump leads; None for other operations. ``offset`` is the byte
    offset of the operation's first EXTENDED_ARG in the code that was read; -1 for a new operation.
    """

    name: str
    arg: int = 0
    target: Op | None = None
    position: Position = NOWHERE
    offset: int = -1

    @property
    def opcode(self) -> int:
        """Return the number of the instruction in this version of Python."""
        return dis.opmap[self.name]

    @property
    def kind(self) -> Kind:
        """Return the properties of the instruction. They are the same in all versions of Python."""
        return kind_of(self.name)


@dataclass(frozen=True, slots=True)
class Protected:
    """A range of the exception table, from ``first`` to ``end``. The operation ``end`` is not in the range.

    An ``end`` of None stands for the end of the code. An exception in the range continues at ``handler``.
    """

    first: Op
    end: Op | None
    handler: Op
    depth: int
    """The number of stack values that stay when the handler begins."""
    lasti: bool
    """Whether the handler gets the offset of the instruction that raised. RERAISE needs the offset."""


@dataclass(slots=True)
class Body:
    """The operations of a code object and its exception table.

    ``protected`` are the ranges of the table, in any order. ``write`` sorts them.
    """

    ops: list[Op]
    protected: list[Protected] = field(default_factory=list)

    @property
    def start(self) -> int:
        """Index in ``ops`` of the first RESUME. The operations before it create cells and generators."""
        return next(i for i, op in enumerate(self.ops) if Kind.STARTS in op.kind)

    def at(self, offset: int) -> int:
        """Return the index in ``ops`` of the operation that was read from byte ``offset``.

        Raises LookupError if there is no such operation.
        """
        for index, op in enumerate(self.ops):
            if op.offset == offset:
                return index
        raise LookupError(f"no operation starts at offset {offset}")


# --- reading ---------------------------------------------------------------------------------------


def read(code: CodeType) -> Body:
    """Return the operations and protected ranges of a user's code object.

    The caller changes them and passes them to ``write``.
    """
    positions = list(code.co_positions())
    ops: list[Op] = []
    by_offset: dict[int, Op] = {}
    jumps: list[tuple[Op, int]] = []
    for start, offset, following, name, arg in units(code):
        position = positions[offset // 2]
        if name in _PAIRS:
            first, second = _PAIRS[name]
            op = Op(first, arg >> 4, None, position, start)
            ops += [op, Op(second, arg & 15, None, position)]
        else:
            op = Op(_PLAIN.get(name, name), arg, None, position, start)
            ops.append(op)
        # A jump leads to the first EXTENDED_ARG of its target operation.
        by_offset[start] = op
        if dis.opmap[name] in dis.hasjrel:
            jumps.append((op, following - 2 * arg if "BACKWARD" in name else following + 2 * arg))
    for op, where in jumps:
        op.target = by_offset[where]
    protected = [
        Protected(by_offset[r.start], by_offset.get(r.end), by_offset[r.target], r.depth, r.lasti)
        for r in exception_regions(code)
    ]
    return Body(ops, protected)


# --- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assembled:
    """The byte strings of a written code object.

    ``origin`` maps the offset of each operation in the written code to its offset in the code that was read.
    """

    code: bytes
    linetable: bytes
    exceptiontable: bytes
    origin: dict[int, int]


def write(body: Body, first_line: int) -> Assembled:
    """Return the byte strings of a code object whose first line is ``first_line``."""
    layout = _layout(body.ops)
    pieces: list[bytes] = []
    runs: list[tuple[int, Position]] = []
    origin: dict[int, int] = {}
    for op in body.ops:
        arg = _encoded_arg(op, layout)
        count = layout.sizes[op] // 2 - 1 - caches_of(op.opcode)
        prefix = [arg >> 8 * position & 255 for position in range(count, 0, -1)]
        code = b"".join(bytes((EXTENDED_ARG, byte)) for byte in prefix)
        code += bytes((op.opcode, arg & 255)) + bytes((CACHE, 0)) * caches_of(op.opcode)
        pieces.append(code)
        runs.append((len(code) // 2, op.position))
        if op.offset >= 0:
            origin[layout.offsets[op]] = op.offset
    blob = b"".join(pieces)
    # CPython looks entries up in the order of their ranges.
    protected = sorted(body.protected, key=lambda entry: layout.offsets[entry.first])
    table = b"".join(_region(entry, layout.offsets, len(blob)).encoded() for entry in protected)
    return Assembled(blob, _linetable(runs, first_line), table, origin)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The start and the size in bytes of each operation.

    A jump may be larger than its distance needs, because ``_layout`` never shrinks a jump.
    """

    offsets: dict[Op, int]
    sizes: dict[Op, int]


def _size(op: Op, arg: int) -> int:
    """Return the size in bytes of an instruction with its EXTENDED_ARG prefixes and inline caches."""
    prefixes = (max(arg.bit_length(), 1) - 1) // 8
    return 2 * (prefixes + 1 + caches_of(op.opcode))


def _layout(ops: list[Op]) -> _Layout:
    """Return the layout of ``ops``.

    Jumps grow until each distance fits. A jump that grows moves the operations after it.
    """
    sizes = {op: _size(op, 0 if op.target else op.arg) for op in ops}
    while True:
        layout = _Layout(dict(zip(ops, accumulate(sizes.values(), initial=0), strict=False)), sizes)
        needed = {op: _size(op, _encoded_arg(op, layout)) for op in ops if op.target is not None}
        larger = {op: size for op, size in needed.items() if size > sizes[op]}
        if not larger:
            return layout
        sizes = sizes | larger


def _encoded_arg(op: Op, layout: _Layout) -> int:
    """Return the argument of ``op``. For a jump this is the distance in code units (two bytes) in ``layout``.

    Raises ValueError if the instruction cannot jump in the needed direction.
    """
    if op.target is None:
        return op.arg
    distance = (layout.offsets[op.target] - layout.offsets[op] - layout.sizes[op]) // 2
    if "BACKWARD" in op.name:
        distance = -distance
    if distance < 0:
        raise ValueError(f"{op.name} jumps in the wrong direction")
    return distance


def _region(entry: Protected, offsets: dict[Op, int], length: int) -> Region:
    """Return the exception table entry of a protected range, in byte offsets."""
    end = length if entry.end is None else offsets[entry.end]
    return Region(offsets[entry.first], end, offsets[entry.handler], entry.depth, entry.lasti)


def _little_endian_varint(value: int) -> bytes:
    """Encode a number for the line table: six bits in each byte, the lowest bits first."""
    out = bytearray()
    while value >= 64:
        out.append(64 | value & 63)
        value >>= 6
    out.append(value)
    return bytes(out)


def _signed_varint(value: int) -> bytes:
    """Encode a signed number for the line table: the lowest bit is the sign."""
    return _little_endian_varint((-value << 1 | 1) if value < 0 else value << 1)


def linetable_of(code: CodeType, first_line: int) -> bytes:
    """Return the location table of ``code``, encoded relative to ``first_line``.

    Replacement code uses it to have the first line of the user's code as its own.
    """
    runs = ((sum(1 for _ in run), position) for position, run in groupby(code.co_positions()))
    return _linetable(runs, first_line)


def _linetable(runs: Iterable[tuple[int, Position]], first_line: int) -> bytes:
    """Return the location table. ``runs`` are pairs: a number of code units, and their common position."""
    out = bytearray()
    previous = first_line
    for remaining, (line, end_line, column, end_column) in runs:
        while remaining > 0:
            part = min(remaining, 8)
            remaining -= part  # noqa: PLW2901 - the rest of the same run
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
