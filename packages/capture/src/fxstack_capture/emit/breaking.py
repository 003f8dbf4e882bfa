"""Replacements of frames that end in a graph break: the operation runs for real, then the frame goes on elsewhere."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING

from fxstack_capture.emit.builder import call, item, load, store, tuple_of
from fxstack_capture.emit.errors import CannotResumeError
from fxstack_capture.emit.flow import handler_of
from fxstack_capture.emit.frame import Draft, FrameWriter, with_cycles
from fxstack_capture.emit.layout import slot_names
from fxstack_capture.emit.operations import Exit, Step, step_at
from fxstack_capture.emit.resume import (
    FIRST_ARGUMENT,
    Place,
    Resumptions,
    Slot,
    bound_order,
    first_argument,
    free_variables,
)
from fxstack_capture.emit.runtime import Continue
from fxstack_capture.emit.stub import Stub, looks_at_frame, make_stub
from fxstack_capture.interpreter.values import NULL
from fxstack_capture.sources import Globals

if TYPE_CHECKING:
    from types import CellType, CodeType

    from fxstack_capture.emit.assemble import Op
    from fxstack_capture.emit.flow import Flow
    from fxstack_capture.emit.resolve import RealFrame
    from fxstack_capture.trace import Stopped, Trace


@dataclass(frozen=True, slots=True)
class Pieces:
    """What the break is made of, worked out from the user's code before anything is written."""

    user: CodeType
    flow: Flow
    step: Step
    op: Op
    stub: Stub
    slots: tuple[Slot, ...]
    taken: int
    """How many values of the stack lie below those that the operation takes."""
    handler: int | None


def draft_stop(
    trace: Trace, frame: RealFrame, code: CodeType, stopped: Stopped, resumptions: Resumptions
) -> Draft:
    """The replacement of a frame that stopped."""
    pieces = _pieces(code, stopped, resumptions)
    line = pieces.op.position[0] or pieces.user.co_firstlineno

    def write(early: bool) -> Draft:
        writer = FrameWriter(trace, frame, code, early)
        ending = _Ending(writer, pieces, stopped, resumptions, is_resumed=code is not pieces.user)
        return writer.finish(ending.statements, line)

    return with_cycles(write)


def _pieces(code: CodeType, stopped: Stopped, resumptions: Resumptions) -> Pieces:
    resumed = resumptions.of(code)
    user = code if resumed is None else resumed.user
    offset = stopped.offset
    if resumed is not None:
        if offset < resumed.start or offset not in resumed.origin:
            raise CannotResumeError("nothing was executed since the last graph break")
        offset = resumed.origin[offset]
    flow = resumptions.flow(user)
    body = flow.body
    index = body.at(offset)
    step = step_at(body, index)
    slots = slots_of(stopped)
    below = len(stopped.stack) - step.takes
    seen = below - step.looks
    handled = tuple(slot for slot in slots[:seen] if slot is Slot.HANDLED)
    if Slot.HANDLED in slots[below:] or Slot.CAUGHT in slots[below:]:
        raise CannotResumeError(f"{step.ops[-1].name} works on the exception being handled")
    kept = len(handled) + step.looks
    inspected = looks_at_frame(stopped.stack[below:])
    variables = bound_order(user, frozenset(stopped.local_values))
    stub_slots = (*handled, *slots[seen:])
    stub = make_stub(user, step, stub_slots, kept, variables if inspected else None)
    resumptions.unsafe_to_trace(stub.code)
    op = body.ops[index]
    return Pieces(user, flow, step, op, stub, slots, below, handler_of(body, op))


def slots_of(stopped: Stopped) -> tuple[Slot, ...]:
    """What stands where on the stack.

    An ``except`` block keeps the exception that was handled before it; outermost that is None. Below it there
    are only iterators of loops, exits of contexts and offsets, so the first of its kind is the one.
    """
    slots = [Slot.NULL if value is NULL else Slot.VALUE for value in stopped.stack]
    at = -1
    for level in range(stopped.handling):
        at += 1
        while at < len(slots) and not _is_kept(stopped.stack[at], outermost=level == 0):
            at += 1
        if at == len(slots):
            raise CannotResumeError("the exception being handled is not where it was expected")
        slots[at] = Slot.HANDLED
    if stopped.handling and at + 1 < len(slots) and stopped.stack[at + 1] is stopped.handled:
        slots[at + 1] = Slot.CAUGHT
    return tuple(slots)


def _is_kept(value: object, *, outermost: bool) -> bool:
    return value is None if outermost else isinstance(value, BaseException)


def handled_exceptions(stopped: Stopped, slots: tuple[Slot, ...]) -> list[BaseException | None]:
    """The exceptions being handled, outermost first: each is kept by the block inside of its own."""
    kept = [value for value, slot in zip(stopped.stack, slots, strict=True) if slot is Slot.HANDLED]
    return [*kept[1:], stopped.handled]


_Item = tuple[Slot, ast.expr | None]


def _passed(stack: list[_Item]) -> list[ast.expr]:
    return [value for _, value in stack if value is not None]


def _is_empty(cell: CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


class _Ending:
    """Builds every value that leaves first; ``statements`` then come after the effects."""

    def __init__(
        self,
        writer: FrameWriter,
        pieces: Pieces,
        stopped: Stopped,
        resumptions: Resumptions,
        *,
        is_resumed: bool,
    ) -> None:
        self._writer = writer
        self._pieces = pieces
        self._resumptions = resumptions
        self._is_resumed = is_resumed
        rebuilder = writer.rebuilder
        handled = iter(handled_exceptions(stopped, pieces.slots))
        self._stack: list[_Item] = []
        for slot, value in zip(pieces.slots, stopped.stack, strict=True):
            passed = next(handled) if slot is Slot.HANDLED else value
            self._stack.append((slot, rebuilder.expr(passed) if slot.is_passed else None))
        live = self._live_names()
        self._variables = {
            name: rebuilder.expr(value)
            for name, value in stopped.local_values.items()
            if name in live or name in pieces.stub.variables
        }
        self._cells = {
            name: rebuilder.expr(stopped.cells[name]) for name in free_variables(pieces.user)
        }
        self._filled = {name for name, cell in stopped.cells.items() if not _is_empty(cell)}
        self._function_type = rebuilder.constant(FunctionType, "FunctionType")
        self._globals = writer.loads.expr(Globals())
        self._continue = rebuilder.constant(Continue, "Continue")

    # --- what is alive ---------------------------------------------------------------------------

    def _live_names(self) -> set[str]:
        places = [exit.next for exit in self._pieces.step.exits]
        if self._pieces.handler is not None:
            places.append(self._pieces.flow.body.protected[self._pieces.handler].handler)
        live: set[str] = set()
        for place in places:
            live |= self._live_at(place)
        return live

    def _live_at(self, op: Op) -> set[str]:
        names = slot_names(self._pieces.user)
        return {names[slot] for slot in self._pieces.flow.live_before(op)}

    # --- statements ------------------------------------------------------------------------------

    def statements(self, writer: FrameWriter) -> list[ast.stmt]:
        pieces = self._pieces
        self._left = writer.builder.fresh("left")
        seen = pieces.taken - pieces.step.looks
        handled = [i for i in self._stack[:seen] if i[0] is Slot.HANDLED]
        taken = _passed([*handled, *self._stack[seen:]])
        shown = [self._variables[name] for name in pieces.stub.variables]
        stub = self._function(pieces.stub.code)
        run: list[ast.stmt] = [ast.Assign([store(self._left)], call(stub, *shown, *taken))]
        if pieces.handler is not None:
            run = self._guarded(run)
        exits = pieces.step.exits
        last = self._go_on(self._continue_at(exits[-1]))
        if len(exits) > 1:
            tag = item(load(self._left), ast.Constant(-1))
            first = self._go_on(self._continue_at(exits[0]))
            last = [ast.If(ast.Compare(tag, [ast.Eq()], [ast.Constant(0)]), first, last)]
        return [*run, *last]

    def _function(self, code: CodeType) -> ast.expr:
        closure: ast.expr = ast.Constant(None)
        if code.co_freevars:
            closure = tuple_of(self._cells[name] for name in code.co_freevars)
        made = self._writer.builder.constant(code, f"code_{code.co_name}")
        nothing = ast.Constant(None)
        name = ast.Constant(code.co_name)
        return call(self._function_type, made, self._globals, name, nothing, closure)

    def _continue_at(self, exit: Exit) -> tuple[ast.expr, list[ast.expr]]:
        """The resume function of an exit, and its arguments."""
        results: list[_Item] = []
        for null in exit.results:
            count = len(_passed(results))
            value = item(load(self._left), ast.Constant(count))
            results.append((Slot.NULL, None) if null else (Slot.VALUE, value))
        stack = [*self._stack[: self._pieces.taken], *results]
        return self._resume(exit.next, stack, raising=None)

    def _resume(
        self, op: Op, stack: list[_Item], raising: ast.expr | None, live: Op | None = None
    ) -> tuple[ast.expr, list[ast.expr]]:
        alive = self._live_at(live or op)
        bound = bound_order(self._pieces.user, frozenset(alive & self._variables.keys()))
        slots = tuple(slot for slot, _ in stack)
        first = self._first(bound)
        place = Place(op.offset, slots, bound, raising is not None, tuple(first))
        code = self._resumptions.at(self._pieces.user, place).code
        arguments = [*first.values(), *_passed(stack)]
        if raising is not None:
            arguments.append(raising)
        rest = [self._variables[name] for name in bound if name not in first]
        return self._function(code), [*arguments, *rest]

    def _first(self, bound: tuple[str, ...]) -> dict[str, ast.expr]:
        """The argument that ``super()`` looks for, by the name under which it is passed."""
        name = first_argument(self._pieces.user)
        if name in bound:
            return {name: self._variables[name]}
        if name in self._filled:
            return {FIRST_ARGUMENT: ast.Attribute(self._cells[name], "cell_contents", ast.Load())}
        return {}

    def _go_on(self, resume: tuple[ast.expr, list[ast.expr]]) -> list[ast.stmt]:
        """Hand over: a resumed frame returns to the loop in the replacement of the user's own frame."""
        function, arguments = resume
        if self._is_resumed:
            return [ast.Return(call(self._continue, tuple_of((function, tuple_of(arguments)))))]
        value = self._writer.builder.fresh("value")
        again = ast.Compare(
            call(self._writer.builder.constant(type, "type"), load(value)),
            [ast.Is()],
            [self._continue],
        )
        starred = ast.Starred(item(load(value), ast.Constant(1)), ast.Load())
        onward = ast.Call(item(load(value), ast.Constant(0)), [starred], [])
        return [
            ast.Assign([store(value)], call(function, *arguments)),
            ast.While(again, [ast.Assign([store(value)], onward)], []),
            ast.Return(load(value)),
        ]

    def _guarded(self, run: list[ast.stmt]) -> list[ast.stmt]:
        """Inside ``try`` or ``with`` of the user: what the operation raises is raised again there."""
        pieces = self._pieces
        assert pieces.handler is not None
        entry = pieces.flow.body.protected[pieces.handler]
        caught = self._writer.builder.fresh("error")
        kept = self._writer.builder.fresh("raised")
        resume = self._resume(
            pieces.op, list(self._stack[: entry.depth]), load(kept), live=entry.handler
        )
        keep: ast.stmt = ast.Assign([store(kept)], load(caught))
        base = self._writer.builder.constant(BaseException, "BaseException")
        handler = ast.ExceptHandler(base, caught, [keep])
        none: ast.stmt = ast.Assign([store(kept)], ast.Constant(None))
        raised = ast.Compare(load(kept), [ast.IsNot()], [ast.Constant(None)])
        go_on = ast.If(raised, self._go_on(resume), [])
        return [none, ast.Try(run, [handler], [], []), go_on]
