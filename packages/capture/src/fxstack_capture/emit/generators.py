"""A function that makes a generator in the suspended state of a traced generator.

The code is the user's code after a prologue that restores locals and stack and then yields once. The maker of
the generator advances the generator past this yield. Then ``send``, ``throw`` and ``close`` act at the user's
yield.
"""

from __future__ import annotations

import dis
from dataclasses import dataclass
from types import CodeType

from fxstack_capture.bytecode.assemble import Body, Op, Protected, read
from fxstack_capture.bytecode.flow import handler_of
from fxstack_capture.bytecode.layout import Layout, assemble, move
from fxstack_capture.bytecode.units import slot_names
from fxstack_capture.emit.errors import CannotResumeError
from fxstack_capture.emit.resume import Slot, free_variables, push, stack_arguments


@dataclass(frozen=True, slots=True)
class Suspension:
    """Code of a suspended generator.

    Its arguments are the stack values, then ``bound``; ``free`` are its free variables.
    """

    code: CodeType
    free: tuple[str, ...]


def suspended_at(user: CodeType, offset: int, slots: tuple[Slot, ...], bound: tuple[str, ...]) -> Suspension:
    """Return the code of a generator function that continues ``user`` at ``offset``.

    ``offset`` is the instruction that runs when the generator receives a value.
    """
    body = read(user)
    index = body.at(offset)
    yielding, resuming = body.ops[index - 1], body.ops[index]
    if yielding.name != "YIELD_VALUE" or resuming.name != "RESUME":
        raise CannotResumeError(f"a generator suspended at {yielding.name}")
    handler = handler_of(body, yielding)
    free = free_variables(user)
    rest = tuple(n for n in user.co_varnames if n not in bound and n not in free)
    layout = Layout((*stack_arguments(slots), *bound), rest, free)
    move(body, slot_names(user), layout)
    entry = None if handler is None else body.protected[handler]
    start = _start(body, slots, layout, user)
    again = [Op("YIELD_VALUE", yielding.arg), Op("RESUME", resuming.arg)]
    ops = [*start, *again, Op("JUMP_FORWARD", 0, body.ops[index + 1])]
    if body.ops[index - 2].name == "SEND" and "CLEANUP_THROW" not in dis.opmap:
        ops = _delegating(start, again, body.ops[index + 1], body.ops[index - 2])
    for op in ops:
        op.position = yielding.position
    if entry is not None:
        covered = Protected(again[0], again[1], entry.handler, entry.depth, entry.lasti)
        body.protected.insert(0, covered)
    first = next(i for i, op in enumerate(body.ops) if op.name == "RESUME")
    body.ops[:first] = ops
    code, _ = assemble(user, body, layout, user.co_stacksize + len(slots) + 2, (None,))
    return Suspension(code, free)


def _delegating(start: list[Op], again: list[Op], following: Op, sending: Op) -> list[Op]:
    """Return the prologue for a generator suspended in ``yield from``, before Python 3.12."""
    # ``throw`` finds the SEND before the yield and, when the inner generator ends, makes the jump of the
    # SEND. ``throw`` reads one byte of the jump distance, so the SEND jumps to a near JUMP_FORWARD.
    landing = Op("JUMP_FORWARD", 0, sending.target)
    unreached = Op("SEND", 0, landing)
    onward = Op("JUMP_FORWARD", 0, following)
    return [*start, Op("JUMP_FORWARD", 0, again[0]), unreached, *again, onward, landing]


def _start(body: Body, slots: tuple[Slot, ...], layout: Layout, user: CodeType) -> list[Op]:
    """Return the prologue: make the generator, restore the stack, and load None for the first yield."""
    copy = [Op("COPY_FREE_VARS", len(layout.free))] if layout.free else []
    begin = [*copy, Op("RETURN_GENERATOR"), Op("POP_TOP"), Op("RESUME", 0)]
    return [*begin, *push(slots, layout, body.protected), Op("LOAD_CONST", len(user.co_consts))]
