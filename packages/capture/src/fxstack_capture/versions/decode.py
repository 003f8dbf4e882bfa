"""Decode a code object into a ``Program``: merge prefixes, resolve jumps, and find the handlers of exceptions."""

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
from fxstack_capture.interpreter.program import Behaviour, ExceptHandler, Program, Receiver
from fxstack_capture.standard_library import is_of_standard_library
from fxstack_capture.versions.lowering import Instruction, Opcode
from fxstack_interchange.locations.tracebacks import TracebackStub

_RESUME = dis.opmap["RESUME"]
_RESUME_AFTER_DELEGATION = 2
"""The argument of RESUME (two bits) for RESUME after ``yield from``. 0: at the start, 1: after yield, 3:
after await.
"""


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """The opcodes of a version of Python, and the other differences between versions."""

    opcodes: Mapping[str, Opcode]
    throw_leaves_send: bool
    """Whether ``generator.throw`` itself leaves a ``yield from`` whose iterator has returned (Python 3.11)."""
    behaviour: Behaviour
    """The other differences that programs can see."""


def decode(code: CodeType, instruction_set: InstructionSet) -> Program:
    """Return the program of a code object. ``ProgramTable`` calls this once for each code object."""
    names = slot_names(code)
    indices: dict[int, int] = {}
    raw = list(_instructions(code, indices))
    indices.update((instruction.start, index) for index, instruction in enumerate(raw))
    indices[len(code.co_code)] = len(raw)
    handlers = _handlers(code, raw, indices)
    opcodes = instruction_set.opcodes
    steps = append_only([opcodes[i.opname].lower(i) for i in raw])
    continues = any(map(CONTINUING, code.co_varnames))
    return Program(
        steps=filling(wrapping(steps, names), names) if continues else steps,
        continues=continues,
        offsets=tuple([i.start for i in raw]),
        lines=_lines(code, raw),
        handlers=handlers,
        protects=any(handler is not None for handler in handlers),
        receivers=_receivers(raw, handlers),
        names=names,
        cell_indices=cell_indices(code, names),
        signature=Signature(code),
        delegations=_delegations(raw, throw_leaves_send=instruction_set.throw_leaves_send),
        behaviour=instruction_set.behaviour,
        ours=code.co_filename == generators.__file__,
        library=is_of_standard_library(code.co_filename),
        hidden=code.co_filename == polyfill.__file__,
        traceback_stub=TracebackStub(code),
    )


def cell_indices(code: CodeType, names: tuple[str, ...]) -> frozenset[int]:
    """Return the slots that hold cells. ``names`` are the names of the variables by slot."""
    cells = {*code.co_cellvars, *code.co_freevars}
    return frozenset(index for index, name in enumerate(names) if name in cells)


def _instructions(code: CodeType, indices: Mapping[int, int]) -> Iterator[Instruction]:
    """Yield the instructions in order, merged with their prefixes. ``indices`` maps a bytecode offset to a
    step.
    """
    start: int | None = None
    keywords: tuple[str, ...] = ()
    for begin, offset, following, name, argument in units(code):
        start = begin if start is None else start
        if name == "KW_NAMES":
            keywords = code.co_consts[argument]
        elif name not in PREFIXES:
            delegating = name == "YIELD_VALUE" and _is_delegating(code.co_code, following)
            yield Instruction(code, indices, name, argument, start, offset, following, keywords, delegating)
            start, keywords = None, ()


def _is_delegating(data: bytes, following: int) -> bool:
    """Return whether the instruction at byte ``following`` is a RESUME after a ``yield from``."""
    if following >= len(data) or data[following] != _RESUME:
        return False
    return data[following + 1] & 3 == _RESUME_AFTER_DELEGATION


def _delegations(raw: list[Instruction], *, throw_leaves_send: bool) -> dict[int, int | None]:
    """Return ``Program.delegations`` for the instructions ``raw``: the yields of each ``yield from``."""
    sends = {index: raw[index - 1] for index, instruction in enumerate(raw) if instruction.delegating}
    return {index: send.jump(send.oparg) if throw_leaves_send else None for index, send in sends.items()}


def _lines(code: CodeType, raw: list[Instruction]) -> tuple[int, ...]:
    """Return the line of each instruction. An instruction without a line has the line of the definition."""
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
    """Return for each instruction the handler of its exceptions, or None."""
    handlers: list[ExceptHandler | None] = [None] * len(raw)
    offsets = [instruction.offset for instruction in raw]
    for region in exception_regions(code):
        handler = ExceptHandler(indices[region.target], region.depth, region.lasti)
        begin, end = bisect_left(offsets, region.start), bisect_left(offsets, region.end)
        handlers[begin:end] = [handler] * (end - begin)
    return tuple(handlers)


def _receivers(
    raw: list[Instruction], handlers: tuple[ExceptHandler | None, ...]
) -> dict[int, tuple[Receiver, ...]]:
    """Return ``Program.receivers``: maps a step to the blocks that receive its exceptions."""
    by_handler = {handler: _receivers_from(raw, handlers, handler) for handler in dict.fromkeys(handlers)}
    return {step: by_handler[handler] for step, handler in enumerate(handlers) if by_handler[handler]}


def _receivers_from(
    raw: list[Instruction], handlers: tuple[ExceptHandler | None, ...], handler: ExceptHandler | None
) -> tuple[Receiver, ...]:
    """Return the blocks that receive an exception, from ``handler`` outwards.

    The last of them is the first block that is not a ``with`` block.
    """
    receivers: list[Receiver] = []
    seen: set[int] = set()
    while handler is not None and handler.target not in seen:
        target = handler.target
        seen.add(target)
        names = [instruction.opname for instruction in raw[target : target + 2]]
        if names[:1] == ["PUSH_EXC_INFO"]:
            is_with = names[1:] == ["WITH_EXCEPT_START"]
            receivers.append(Receiver(target, handler.depth, is_with))
            if not is_with:
                break
        reraise = next((k for k in range(target, len(raw)) if raw[k].opname == "RERAISE"), None)
        handler = None if reraise is None else handlers[reraise]
    return tuple(receivers)
