"""A stub: a function that runs the one operation that broke the graph.

The arguments of a stub are the operation's operands. A stub returns a tuple: the values that the operation
leaves, then the number of the exit. A stub has the user's name, line and globals. If the operation may read
the frame's variables, the stub has these variables as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType

from fxstack_capture.bytecode import build
from fxstack_capture.bytecode.assemble import Body, Op, Position, Protected
from fxstack_capture.bytecode.build import NULL_AFTER, NULL_IN_WITH
from fxstack_capture.bytecode.flow import FRAME_READERS
from fxstack_capture.bytecode.layout import Layout, assemble, move, prologue, uses_cell
from fxstack_capture.bytecode.units import slot_names
from fxstack_capture.emit.endings.steps import Exit, Step
from fxstack_capture.emit.resume import Slot, free_variables, push, stack_arguments

# No attribute of an object of another type is read, because its ``__getattr__`` is the program's code.
_NAMED = (FunctionType, BuiltinFunctionType, MethodType, type)
_INSPECTS_FRAME = FRAME_READERS | {"super"}


@dataclass(frozen=True, slots=True)
class Stub:
    """A stub. Its arguments are the frame's variables, then the operands that are not NULL."""

    code: CodeType
    variables: tuple[str, ...]
    """The frame's variables that the operation can observe, for example through ``locals()``."""


def looks_at_frame(stack: tuple[object, ...]) -> bool:
    """Return whether the operation may read the variables of its frame, as a call of ``locals`` does.

    ``stack`` are the operands. For such an operation, the stub has the frame's variables.
    """
    names = {getattr(v, "__name__", None) for v in stack if issubclass(type(v), _NAMED)}
    return bool(names & _INSPECTS_FRAME)


def make_stub(
    user: CodeType, step: Step, slots: tuple[Slot, ...], kept: int, variables: tuple[str, ...] | None
) -> Stub:
    """Make a stub for ``step``, an operation of the code ``user``.

    ``slots`` are the kinds of three groups of stack values, in this order: the handled exceptions, the values
    that the operation reads without popping, and its operands. The first ``kept`` slots are still on the
    stack after the operation. ``variables`` are the names of the frame's variables, or None if the operation
    does not read variables.
    """
    if not NULL_IN_WITH:
        below = (Slot.UNUSED if slot is Slot.NULL else slot for slot in slots[:kept])
        slots = (*below, *slots[kept:])
    uses_cells = variables is not None or any(map(uses_cell, step.ops))
    free = free_variables(user) if uses_cells else ()
    shown = variables or ()
    on_stack = stack_arguments(slots)
    names = slot_names(user)
    rest = tuple(n for n in user.co_varnames if n not in shown and n not in free) if uses_cells else ()
    layout = Layout((*shown, *on_stack), rest, free)
    position = step.ops[-1].position
    operation = Body([build.forward(op) for op in step.ops])
    if uses_cells:
        move(operation, names, layout)
    protected: list[Protected] = []
    ops = prologue(layout) + push(slots, layout, protected)
    ops += operation.ops
    ops += _leave(step, user, operation.ops[-1], slots[:kept])
    if Slot.HANDLED in slots:
        cleanup = [build.copy(3), build.end_handling(), build.reraise(1)]
        depth = slots.index(Slot.HANDLED) + 1
        protected.append(Protected(operation.ops[0], cleanup[0], cleanup[0], depth, lasti=True))
        ops += cleanup
    for op in ops:
        op.position = position
    tags = tuple(range(len(step.exits)))
    stack = user.co_stacksize + len(slots) + 6
    code, _ = assemble(user, Body(ops, protected), layout, stack, tags)
    return Stub(code, shown)


def make_frame_stub(user: CodeType, position: Position, handled: tuple[Slot, ...]) -> CodeType:
    """Make a stub of a frame between the root and the operation, so that the frame is on the Python stack.

    The stub takes the exceptions that the frame is handling, a function, and a tuple of arguments. It calls
    the function on the user's line ``position``, while these exceptions are handled. ``handled`` are the kinds of
    the exceptions, outermost first. The stub returns (result, 0).
    """
    op = build.call_with_sequence(None, position)
    pair = (Slot.VALUE, Slot.NULL) if NULL_AFTER else (Slot.NULL, Slot.VALUE)
    taken = (*pair, Slot.VALUE, *[Slot.NULL] * NULL_IN_WITH)
    step = Step((op,), len(taken), (Exit((False,), op),))
    return make_stub(user, step, (*handled, *taken), len(handled), None).code


def _leave(step: Step, user: CodeType, last: Op, kept: tuple[Slot, ...]) -> list[Op]:
    """Return the instructions of each exit: pack the results, restore the exception state, return.

    ``last`` is the operation's own instruction. ``kept`` are the kinds of the values that are still on the
    stack.
    """
    ops: list[Op] = []
    for number, exit in enumerate(step.exits):
        count = sum(1 for null in exit.results if not null)
        pack = [build.constant(len(user.co_consts) + number), build.make_tuple(count + 1)]
        for slot in reversed(kept):
            pack += [build.swap(2), build.end_handling() if slot is Slot.HANDLED else build.pop()]
        pack.append(build.leave())
        if exit.jump:
            pack = [*(Op(name) for name in step.passed), *pack]
            last.target = pack[0]
        ops += pack
    return ops
