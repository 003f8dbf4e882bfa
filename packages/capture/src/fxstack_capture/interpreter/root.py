"""The root frame: the one that is compiled. It counts its steps, so that it can be run again up to
any of them.
"""

from __future__ import annotations

from types import CellType
from typing import TYPE_CHECKING, Any

from fxstack_capture.breaks import GraphBreak
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.handlers import local_slots
from fxstack_capture.interpreter.values import NULL
from fxstack_capture.trace import Raised, Returned, Stopped

if TYPE_CHECKING:
    from types import CodeType, FunctionType

    from fxstack_capture.interpreter.machine import BytecodeInterpreter
    from fxstack_capture.interpreter.program import Handler, Step
    from fxstack_capture.trace import Lazy, RootOutcome

_ENTERING: dict[Any, Handler] = {
    local_slots.load_fast: local_slots.root_load_fast,
    local_slots.load_fast_load_fast: local_slots.root_load_fast_load_fast,
    local_slots.load_fast_and_clear: local_slots.root_load_fast_and_clear,
    local_slots.store_fast_load_fast: local_slots.root_store_fast_load_fast,
    local_slots.make_cell: local_slots.root_make_cell,
}
"""Handlers whose variant for the root frame lets lazy arguments enter."""


class RootRun:
    """One execution of the root frame."""

    def __init__(self, interp: BytecodeInterpreter, fn: FunctionType, code: CodeType) -> None:
        self.interp = interp
        self.fn = fn
        self.code = code
        self.program = interp.programs.of(code)
        self.count = 0

    def execute(self, local_values: dict[str, Lazy], stop_at: int | None) -> RootOutcome:
        """Run to the end, to step number ``stop_at``, or to a GraphBreak."""
        fn, interp = self.fn, self.interp
        closure = interp.trace.world.function_parts(fn)[2]
        fast: list[Any] = [local_values.get(name, NULL) for name in self.program.names]
        frame = Frame(interp, fn, self.program, fast, closure)
        frame.code = self.code
        interp.tracing = True
        interp.enter(frame)
        try:
            return self._loop(frame, -1 if stop_at is None else stop_at)
        except GraphBreak as reason:
            interp.locate(reason)
            reason.root_instruction = self.count - 1
            reason.root_line = frame.line
            raise
        finally:
            interp.tracing = False
            interp.frame = frame.back

    def _loop(self, frame: Frame, stop_at: int) -> RootOutcome:
        """The interpreter's loop, with a counter."""
        steps = self._entering_steps()
        pc = 0
        while True:
            try:
                while True:
                    frame.pc = pc
                    if self.count == stop_at:
                        return self._snapshot(frame)
                    self.count += 1
                    handler, operand = steps[pc]
                    target = handler(frame, operand)
                    if target is None:
                        pc += 1
                    elif target >= 0:
                        pc = target
                    else:
                        return Returned(frame.stack.pop())
            except GraphBreak:
                raise
            except BaseException as raised:
                error = raised
            if frame.program.handlers[pc] is None:
                self.interp.account(frame, error)
                return Raised(error)
            pc = self.interp.unwind(frame, error)
            del error

    def _entering_steps(self) -> tuple[Step, ...]:
        return tuple(
            (_ENTERING.get(handler, handler), operand) for handler, operand in self.program.steps
        )

    def _snapshot(self, frame: Frame) -> Stopped:
        bound = {
            index: name
            for index, name in enumerate(self.program.names)
            if frame.fast[index] is not NULL
        }
        # Before MAKE_CELL a cell variable's slot still holds the argument itself.
        cells = {i for i in self.program.cell_indices if type(frame.fast[i]) is CellType}
        return Stopped(
            offset=self.program.offsets[frame.pc],
            stack=tuple(frame.stack),
            local_values={name: frame.fast[i] for i, name in bound.items() if i not in cells},
            cells={name: frame.fast[i] for i, name in bound.items() if i in cells},
            handling=frame.handling,
            handled=self.interp.handled.value,
        )
