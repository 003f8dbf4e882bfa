"""Code that makes a generator which is suspended at the same ``yield`` as a generator of the trace.

The code is the user's code after a prologue. The prologue restores locals and stack and then yields once. The
replacement advances the new generator to this yield. After that, ``send``, ``throw`` and ``close`` act at the
user's ``yield``.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType

from fxstack_capture.bytecode import build
from fxstack_capture.bytecode.assemble import Op, Protected, read
from fxstack_capture.bytecode.flow import handler_of
from fxstack_capture.bytecode.layout import Layout, assemble, move, prologue
from fxstack_capture.bytecode.units import slot_names
from fxstack_capture.emit.errors import CannotResumeError
from fxstack_capture.emit.resume import Slot, free_variables, push, stack_arguments
from fxstack_interchange.bytecode import Kind


@dataclass(frozen=True, slots=True)
class Suspension:
    """Code of a function that makes a suspended generator.

    The arguments of the function are the stack values, then the bound variables. ``free`` are the function's
    free variables, in order.
    """

    code: CodeType
    free: tuple[str, ...]


def suspended_at(user: CodeType, offset: int, slots: tuple[Slot, ...], bound: tuple[str, ...]) -> Suspension:
    """Return the code of a generator function that continues ``user`` at ``offset``. Raises CannotResumeError
    if the generator does not wait at a plain yield.

    ``offset`` is the instruction that runs when the generator receives a value. ``slots`` are the kinds of
    the generator's stack values. ``bound`` are the variables that have values.
    """
    body = read(user)
    index = body.at(offset)
    yielding, resuming = body.ops[index - 1], body.ops[index]
    if Kind.YIELDS not in yielding.kind or Kind.STARTS not in resuming.kind:
        raise CannotResumeError(f"a generator suspended at {yielding.name}")
    handler = handler_of(body, yielding)
    free = free_variables(user)
    rest = tuple(n for n in user.co_varnames if n not in bound and n not in free)
    layout = Layout((*stack_arguments(slots), *bound), rest, free)
    move(body, slot_names(user), layout)
    entry = None if handler is None else body.protected[handler]
    start = prologue(layout, is_generator=True)
    start += [*push(slots, layout, body.protected), build.constant(len(user.co_consts))]
    yield_ops = [Op(yielding.name, yielding.arg), Op(resuming.name, resuming.arg)]
    ops = [*start, *yield_ops, build.jump(body.ops[index + 1])]
    if Kind.DELEGATES in body.ops[index - 2].kind and build.THROW_LEAVES_SEND:
        ops = _delegating_prologue(start, yield_ops, body.ops[index + 1], body.ops[index - 2])
    for op in ops:
        op.position = yielding.position
    if entry is not None:
        covered = Protected(yield_ops[0], yield_ops[1], entry.handler, entry.depth, entry.lasti)
        body.protected.insert(0, covered)
    body.ops[: body.start] = ops
    code, _ = assemble(user, body, layout, user.co_stacksize + len(slots) + 2, (None,))
    return Suspension(code, free)


def _delegating_prologue(start: list[Op], yield_ops: list[Op], following: Op, sending: Op) -> list[Op]:
    """Return the prologue for a generator that is suspended in ``yield from``. Used before Python 3.12.

    ``sending`` is the SEND of the ``yield from``.
    """
    # ``throw`` finds the SEND before the yield and, when the inner generator ends, makes the jump of the
    # SEND. ``throw`` reads one byte of the jump distance, so the SEND jumps to a near JUMP_FORWARD.
    landing = build.jump(sending.target)
    unreached = build.send(landing)
    return [*start, build.jump(yield_ops[0]), unreached, *yield_ops, build.jump(following), landing]
