"""From a code object to a ``Program``: merge prefixes, drop cache entries, resolve jumps and
handlers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fxstack_capture.interpreter import generators
from fxstack_capture.interpreter.binding import Signature
from fxstack_capture.interpreter.exception_table import exception_regions
from fxstack_capture.interpreter.program import ExceptHandler, Instruction, Program
from fxstack_capture.interpreter.tracebacks import TracebackStub

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import CodeType

    from fxstack_capture.interpreter.program import Lowering

_CACHE = "CACHE"
_EXTENDED_ARG = "EXTENDED_ARG"
_KW_NAMES = "KW_NAMES"
_DROPPED_PREFIXES = frozenset({"PRECALL"})
_RESUME = "RESUME"
_RESUME_AFTER_DELEGATION = 2
"""RESUME's argument (two bits): 0 start, 1 after yield, 2 after yield from, 3 after await."""


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """What a Python version's bytecode looks like, and what it leaves to C code."""

    opnames: tuple[str, ...]
    lowerings: Mapping[str, Lowering]
    throw_leaves_send: bool
    """``generator.throw`` itself leaves a ``yield from`` whose iterator has returned (3.11)."""
    close_returns_value: bool
    """``generator.close()`` gives what the generator returned (3.13)."""


def decode(code: CodeType, instruction_set: InstructionSet) -> Program:
    """Decode one code object."""
    names = local_names(code)
    raw = list(_instructions(code, instruction_set.opnames, names))
    indices = {instruction.start: index for index, instruction in enumerate(raw)}
    indices[len(code.co_code)] = len(raw)
    steps = []
    for instruction in raw:
        lower = instruction_set.lowerings[instruction.opname]
        steps.append(lower(replace(instruction, indices=indices)))
    return Program(
        steps=tuple(steps),
        offsets=tuple(i.start for i in raw),
        lines=_lines(code, raw),
        handlers=_handlers(code, raw, indices),
        names=names,
        cell_indices=cell_indices(code, names),
        signature=Signature(code),
        delegations=_delegations(raw, indices, known=instruction_set.throw_leaves_send),
        close_returns_value=instruction_set.close_returns_value,
        ours=code.co_filename == generators.__file__,
        traceback_stub=TracebackStub(code),
    )


def local_names(code: CodeType) -> tuple[str, ...]:
    """Names of the "locals plus" slots: an argument that is also a cell has one slot."""
    own = set(code.co_varnames)
    cells = tuple(name for name in code.co_cellvars if name not in own)
    return code.co_varnames + cells + code.co_freevars


def cell_indices(code: CodeType, names: tuple[str, ...]) -> frozenset[int]:
    """Slots that hold cell objects."""
    cells = {*code.co_cellvars, *code.co_freevars}
    return frozenset(index for index, name in enumerate(names) if name in cells)


def _instructions(
    code: CodeType, opnames: tuple[str, ...], names: tuple[str, ...]
) -> Iterator[Instruction]:
    """Whole operations in order. CACHE units belong to the instruction before them."""
    units = code.co_code
    size = len(units)
    start = offset = extended = 0
    keywords: tuple[str, ...] = ()
    while offset < size:
        opname = opnames[units[offset]]
        oparg = extended | units[offset + 1]
        following = offset + 2
        while following < size and opnames[units[following]] == _CACHE:
            following += 2
        extended = 0
        if opname == _EXTENDED_ARG:
            extended = oparg << 8
        elif opname == _KW_NAMES:
            keywords = code.co_consts[oparg]
        elif opname not in _DROPPED_PREFIXES:
            delegating = _delegating(units, opnames, following)
            yield Instruction(
                code=code,
                opname=opname,
                oparg=oparg,
                start=start,
                offset=offset,
                following=following,
                keywords=keywords,
                delegating=opname == "YIELD_VALUE" and delegating,
                indices={},
                names=names,
            )
            start, keywords = following, ()
        offset = following


def _delegating(units: bytes, opnames: tuple[str, ...], following: int) -> bool:
    """Whether a RESUME at ``following`` says that the yield before it belongs to ``yield from``."""
    if following >= len(units) or opnames[units[following]] != _RESUME:
        return False
    return units[following + 1] & 3 == _RESUME_AFTER_DELEGATION


def _delegations(
    raw: list[Instruction], indices: Mapping[int, int], *, known: bool
) -> dict[int, int | None]:
    """The yields of ``yield from``, each with the step after it if a ``throw`` has to go there."""
    found: dict[int, int | None] = {}
    for index, instruction in enumerate(raw):
        if instruction.delegating:
            send = replace(raw[index - 1], indices=indices)
            found[index] = send.jump(send.oparg) if known else None
    return found


def _lines(code: CodeType, raw: list[Instruction]) -> tuple[int, ...]:
    by_unit = [line for line, *_ in code.co_positions()]
    return tuple(by_unit[i.offset // 2] or code.co_firstlineno for i in raw)


def _handlers(
    code: CodeType, raw: list[Instruction], indices: Mapping[int, int]
) -> tuple[ExceptHandler | None, ...]:
    found: list[ExceptHandler | None] = [None] * len(raw)
    for region in exception_regions(code):
        handler = ExceptHandler(indices[region.target], region.depth, region.lasti)
        for index, instruction in enumerate(raw):
            if region.start <= instruction.offset < region.end:
                found[index] = handler
    return tuple(found)
