"""Read the code units of a code object, and the names of its variables by slot."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType

EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
CACHE = dis.opmap["CACHE"]
PREFIXES = frozenset({"KW_NAMES", "PRECALL"})
"""Instructions that are part of the next instruction."""


def units(code: CodeType) -> Iterator[tuple[int, int, int, str, int]]:
    """Yield (start, offset, following, name, argument) for each instruction, in order.

    ``start`` is the offset of the first EXTENDED_ARG. ``following`` is the offset after the inline cache.
    Jumps are relative to ``following``.
    """
    data, names, caches = code.co_code, dis.opname, _CACHES
    start = offset = extended = 0
    while offset < len(data):
        opcode, argument = data[offset], data[offset + 1] | extended
        if opcode == EXTENDED_ARG:
            extended = argument << 8
            offset += 2
            continue
        following = offset + 2 + 2 * caches[opcode]
        yield start, offset, following, names[opcode], argument
        start = offset = following
        extended = 0


def caches_of(opcode: int) -> int:
    """Return the number of inline cache units (two bytes each) after an instruction with this opcode."""
    return _CACHES[opcode]


def _cache_table() -> list[int]:
    """Return the number of inline cache units by opcode, for ``caches_of``."""
    table = vars(dis)["_inline_cache_entries"]
    if isinstance(table, dict):  # from 3.13 on, the keys are names
        return [table.get(name, 0) for name in dis.opname[:256]]
    return list(table)


_CACHES = _cache_table()


def slot_names(code: CodeType) -> tuple[str, ...]:
    """Return the names of locals, cells and free variables by slot. An argument that is also a cell has one slot."""
    variables = set(code.co_varnames)
    cells = tuple(name for name in code.co_cellvars if name not in variables)
    return code.co_varnames + cells + code.co_freevars
