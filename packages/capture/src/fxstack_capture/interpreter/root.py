"""The root frame: the frame that is compiled."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any, Protocol

from fxstack_capture.breaks import GraphBreak
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.frame import Frame, FrameRunner
from fxstack_capture.interpreter.handlers.deferred.deferred_locals import wrapping
from fxstack_capture.interpreter.handlers.deferred.reordered_texts import steps_of_trace
from fxstack_capture.interpreter.program import ProgramTable
from fxstack_capture.interpreter.stopping import Descent, Reached
from fxstack_capture.trace.records import DeferredLocal, Raised, Returned, RootOutcome


class RootRunner(FrameRunner, Protocol):
    """The part of the interpreter that the root frame uses."""

    frame: Frame | None

    @property
    def programs(self) -> ProgramTable: ...

    @property
    def descent(self) -> Descent | None: ...

    def enter(self, frame: Frame) -> None:
        """Make ``frame`` the current frame."""

    def locate(self, reason: GraphBreak) -> None:
        """Record the user's stack in a graph break that leaves interpreted frames."""

    def arrive(self, frame: Frame) -> None:
        """Advance the break path. Raises Reached at its end."""

    def account(self, frame: Frame, error: BaseException) -> None:
        """Set the context and traceback of an exception in ``frame`` as CPython does."""

    def unwind(self, frame: Frame, error: BaseException) -> int:
        """The step of ``frame`` that handles ``error``. Raises the error again if no step handles it."""


class RootRun:
    """One execution of the root frame."""

    def __init__(self, interp: RootRunner, fn: FunctionType, code: CodeType) -> None:
        self.interp = interp
        self.fn = fn
        self.code = code
        self.program = interp.programs.of(code)
        self.count = 0

    def execute(self, local_values: dict[str, DeferredLocal]) -> RootOutcome:
        """Run to the end of the frame, to the end of the break path, or to a GraphBreak."""
        fn, interp = self.fn, self.interp
        closure = interp.trace.objects.function_parts(fn)[2]
        fast: list[Any] = [local_values.get(name, NULL) for name in self.program.names]
        frame = Frame(interp, fn, self.program, fast, closure)
        frame.code = self.code
        interp.tracing = True
        interp.enter(frame)
        try:
            return self._loop(frame)
        except Reached:
            assert interp.descent is not None
            return interp.descent.stopped(interp.handled.value)
        except GraphBreak as reason:
            interp.locate(reason)
            reason.leave(frame, self.count - 1, is_linked=True)
            raise
        finally:
            interp.tracing = False
            interp.frame = frame.back

    def _loop(self, frame: Frame) -> RootOutcome:
        """The interpreter's loop, with a step counter that other objects can read."""
        interp = self.interp
        names = self.program.names
        steps = steps_of_trace(interp.trace, wrapping(self.program.steps, names))
        stop_at = -1 if interp.descent is None else interp.descent.root_step
        pc = 0
        while True:
            try:
                while True:
                    frame.pc = pc
                    if self.count == stop_at:
                        interp.arrive(frame)
                    self.count += 1
                    handler, operand = steps[pc]
                    target = handler(frame, operand)
                    if target is None:
                        pc += 1
                    elif target >= 0:
                        pc = target
                    else:
                        return self._returned(frame)
            except GraphBreak:
                raise
            except BaseException as raised:
                error = raised
            if frame.program.handlers[pc] is None:
                interp.account(frame, error)
                return Raised(error)
            pc = interp.unwind(frame, error)
            # The traceback would keep frames alive.
            del error

    def _returned(self, frame: Frame) -> Returned:
        """Clear the local variables and return the result.

        Clearing closes generators that only this frame held, and closing them may run code of the program.
        """
        value = frame.stack.pop()
        slots = range(len(frame.fast))
        for index in reversed(slots) if self.program.behaviour.clears_backwards else slots:
            frame.fast[index] = NULL
        self.interp.raise_pending()
        return Returned(value)
