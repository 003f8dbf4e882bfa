"""From a code object to a ``Program``: merge prefixes, drop cache entries, resolve jumps and
handlers.
"""

from __future__ import annotations

import dis
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType

from fxstack_capture.bytecode.exception_table import exception_regions
from fxstack_capture.bytecode.units import PREFIXES, slot_names, units
from fxstack_capture.interpreter import generators
from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_capture.interpreter.binding import Signature
from fxstack_capture.interpreter.handlers.deferred.append_only_lists import append_only
from fxstack_capture.interpreter.handlers.deferred.deferred_locals import CONTINUING, wrapping
from fxstack_capture.interpreter.handlers.deferred.partial_comprehensions import filling
from fxstack_capture.interpreter.program import ExceptHandler, Instruction, Program, Receiver, Surroundings
from fxstack_capture.standard_library import is_of_standard_library
from fxstack_capture.versions.opcode import Opcode
from fxstack_interchange.locations.tracebacks import TracebackStub

_RESUME = dis.opmap["RESUME"]
_RESUME_AFTER_DELEGATION = 2
"""RESUME's argument (two bits): 0 start, 1 after yield, 2 after yield from, 3 after await."""


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """What a Python version's bytecode looks like, and what it leaves to C code."""

    opcodes: Mapping[str, Opcode]
    throw_leaves_send: bool
    """``generator.throw`` itself leaves a ``yield from`` whose iterator has returned (3.11)."""
    throw_warns: bool
    """``generator.throw`` with several arguments is deprecated (3.12)."""
    close_returns_value: bool
    """``generator.close()`` gives what the generator returned (3.13)."""
    clears_backwards: bool
    """A frame that ends lets go of its last variable first (3.14)."""
    counts_unpacked: bool
    """The error of a list, tuple or dictionary with too many values to unpack says how many it has (3.14)."""


def decode(code: CodeType, instruction_set: InstructionSet) -> Program:
    """Decode one code object."""
    names = slot_names(code)
    indices: dict[int, int] = {}
    surroundings = Surroundings(code, names, indices)
    raw = list(_instructions(surroundings))
    for index, instruction in enumerate(raw):
        indices[instruction.start] = index
    indices[len(code.co_code)] = len(raw)
    opcodes = instruction_set.opcodes
    steps = append_only([opcodes[i.opname].lower(i) for i in raw])
    continues = any(map(CONTINUING, code.co_varnames))
    return Program(
        steps=filling(wrapping(steps, names), names) if continues else steps,
        continues=continues,
        offsets=tuple([i.start for i in raw]),
        lines=_lines(code, raw),
        handlers=(handlers := _handlers(code, raw, indices)),
        protects=any(handler is not None for handler in handlers),
        receivers=_receivers(raw, handlers),
        names=names,
        cell_indices=cell_indices(code, names),
        signature=Signature(code),
        delegations=_delegations(raw, known=instruction_set.throw_leaves_send),
        throw_warns=instruction_set.throw_warns,
        close_returns_value=instruction_set.close_returns_value,
        clears_backwards=instruction_set.clears_backwards,
        counts_unpacked=instruction_set.counts_unpacked,
        ours=code.co_filename == generators.__file__,
        library=is_of_standard_library(code.co_filename),
        hidden=code.co_filename == polyfill.__file__,
        traceback_stub=TracebackStub(code),
    )


def cell_indices(code: CodeType, names: tuple[str, ...]) -> frozenset[int]:
    """Slots that hold cell objects."""
    cells = {*code.co_cellvars, *code.co_freevars}
    return frozenset(index for index, name in enumerate(names) if name in cells)


def _instructions(around: Surroundings) -> Iterator[Instruction]:
    """Whole operations in order, with the prefixes that belong to them."""
    code = around.code
    start: int | None = None
    keywords: tuple[str, ...] = ()
    for begin, offset, following, name, argument in units(code):
        start = begin if start is None else start
        if name == "KW_NAMES":
            keywords = code.co_consts[argument]
        elif name not in PREFIXES:
            delegating = name == "YIELD_VALUE" and _delegating(code.co_code, following)
            extent = (start, offset, following)
            yield Instruction(around, name, argument, extent, keywords, delegating=delegating)
            start, keywords = None, ()


def _delegating(data: bytes, following: int) -> bool:
    """Whether a RESUME at ``following`` says that the yield before it belongs to ``yield from``."""
    if following >= len(data) or data[following] != _RESUME:
        return False
    return data[following + 1] & 3 == _RESUME_AFTER_DELEGATION


def _delegations(raw: list[Instruction], *, known: bool) -> dict[int, int | None]:
    """The yields of ``yield from``, each with the step after it if a ``throw`` has to go there."""
    found: dict[int, int | None] = {}
    for index, instruction in enumerate(raw):
        if instruction.delegating:
            send = raw[index - 1]
            found[index] = send.jump(send.oparg) if known else None
    return found


def _lines(code: CodeType, raw: list[Instruction]) -> tuple[int, ...]:
    """Line of each instruction; the definition's for those without."""
    first = code.co_firstlineno
    spans = code.co_lines()
    end = 0
    line: int | None = first
    lines: list[int] = []
    for instruction in raw:
        while instruction.offset >= end:
            _, end, line = next(spans)
        lines.append(first if line is None else line)
    return tuple(lines)


def _handlers(
    code: CodeType, raw: list[Instruction], indices: Mapping[int, int]
) -> tuple[ExceptHandler | None, ...]:
    found: list[ExceptHandler | None] = [None] * len(raw)
    offsets = [instruction.offset for instruction in raw]
    for region in exception_regions(code):
        handler = ExceptHandler(indices[region.target], region.depth, region.lasti)
        begin, end = bisect_left(offsets, region.start), bisect_left(offsets, region.end)
        found[begin:end] = [handler] * (end - begin)
    return tuple(found)


def _receivers(
    raw: list[Instruction], handlers: tuple[ExceptHandler | None, ...]
) -> dict[int, tuple[Receiver, ...]]:
    """What receives the exceptions of the steps: see ``Program.receivers``."""
    known = {handler: _receivers_from(raw, handlers, handler) for handler in dict.fromkeys(handlers)}
    return {step: known[handler] for step, handler in enumerate(handlers) if known[handler]}


def _receivers_from(
    raw: list[Instruction], handlers: tuple[ExceptHandler | None, ...], handler: ExceptHandler | None
) -> tuple[Receiver, ...]:
    """Follow an exception outwards up to the first block that is not a ``with`` block."""
    found: list[Receiver] = []
    seen: set[int] = set()
    while handler is not None and handler.target not in seen:
        target = handler.target
        seen.add(target)
        names = [instruction.opname for instruction in raw[target : target + 2]]
        if names[:1] == ["PUSH_EXC_INFO"]:
            is_with = names[1:] == ["WITH_EXCEPT_START"]
            found.append(Receiver(target, handler.depth, is_with))
            if not is_with:
                break
        again = next((k for k in range(target, len(raw)) if raw[k].opname == "RERAISE"), None)
        handler = None if again is None else handlers[again]
    return tuple(found)
