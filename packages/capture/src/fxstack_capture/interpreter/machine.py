"""The bytecode interpreter: runs frames of the trace on real Python objects.

The loop executes decoded steps (``program``) with handlers (``handlers``). ``trace.objects`` implements
attributes, globals and cells. ``trace.calls`` implements calls and operators.
"""

from __future__ import annotations

import dataclasses
import inspect
from types import CodeType, FunctionType
from typing import Any

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.checks import truth_of_check
from fxstack_capture.interpreter.exceptions.errors import (
    Flight,
    InterruptedTracing,
    chain_context,
    name_types_as_outside,
    set_context,
    set_traceback,
)
from fxstack_capture.interpreter.exceptions.origins import demand_program
from fxstack_capture.interpreter.frame import Frame, HandledException
from fxstack_capture.interpreter.generators import TraceGenerator, unraisable
from fxstack_capture.interpreter.handlers.deferred.deferred_locals import wrapping
from fxstack_capture.interpreter.handlers.deferred.partial_comprehensions import settle
from fxstack_capture.interpreter.handlers.deferred.reordered_texts import steps_of_trace
from fxstack_capture.interpreter.program import ASYNC_FLAGS, Program, ProgramTable, Step
from fxstack_capture.interpreter.stopping import BreakPath, Reached, leave
from fxstack_capture.trace.records import DeferredLocal, Link, Raised, Returned, RootOutcome
from fxstack_capture.trace.state import Trace
from fxstack_interchange.locations.tracebacks import add_entry

_COLLECTS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR
"""Flags of functions that put arguments into a container (``*args``, ``**kwargs``) or are generators."""


class BytecodeInterpreter:
    """The interpreter of one trace, which other folders use through ``trace.protocols.Interpreter``.

    ``programs`` is the table of decoded code. Many traces share the table.
    """

    def __init__(self, trace: Trace, programs: ProgramTable) -> None:
        self.trace = trace
        self.programs = programs
        self.frame: Frame | None = None
        self.return_lines: dict[CodeType, int] | None = None
        self._root_count = 0
        """The number of steps that the root frame has begun."""
        self.handled = HandledException()
        self.tracing = True
        self.handles = False
        """Whether a frame of the trace had an exception handler of the program."""
        self._flight: Flight | None = None
        self._pending_break: GraphBreak | None = None
        self._changed: dict[tuple[int, bool], tuple[Program, tuple[Step, ...]]] = {}
        """The results of ``steps_of``. The keys contain ids of programs, so each entry keeps its program
        alive.
        """
        self._break_path = BreakPath(())

    # --- entry points ----------------------------------------------------------------------------

    def call_function(self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Bind the arguments and run the body. No resume function can continue inside of such a call.

        A call of a generator function returns a ``TraceGenerator``.
        """
        if self.programs.of(fn.__code__).ours:
            return fn(*args, **kwargs)
        return self.run(self.new_frame(fn, args, kwargs), None)

    def new_frame(self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame:
        """Return the frame of a call. The frame has not run yet.

        Raises TypeError if the arguments do not match the parameters.
        """
        program = self.programs.of(fn.__code__)
        signature = program.signature
        defaults, kwdefaults, closure = self.trace.objects.function_parts(fn)
        fast = signature.bind((fn.__qualname__, defaults, kwdefaults), args, kwargs)
        if signature.flags & ASYNC_FLAGS:
            raise graph_break("unsupported-bytecode", f"the coroutine {fn.__qualname__}")
        return Frame(self, fn, program, fast, closure)

    def call_linked(self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], link: Link) -> Any:
        """Run a call as ``call_function`` does. The call is resumable: its result is the result of the
        caller's step (``stopping``).
        """
        program = self.programs.of(fn.__code__)
        deferred = any(type(value) is DeferredLocal for value in (*args, *kwargs.values()))
        # Deferred locals must not get into containers or generators, which outlive the call's frame.
        if deferred and (program.ours or program.signature.flags & _COLLECTS) and not program.continues:
            args = tuple([self._wrap_deferred(value) for value in args])
            kwargs = {name: self._wrap_deferred(value) for name, value in kwargs.items()}
            deferred = False
        if program.ours:
            return fn(*args, **kwargs)
        frame = self.new_frame(fn, args, kwargs)
        frame.defers = deferred and not program.continues
        frame.link = link
        frame.handled_outside = self.handled.value
        return self.run(frame, None)

    def _wrap_deferred(self, value: object) -> Any:
        """Return the wrapped value if ``value`` is a deferred local, else ``value`` itself."""
        if type(value) is DeferredLocal:
            return self.trace.objects.enter(value.value, value.source)
        return value

    def run_body(self, fn: FunctionType, namespace: object) -> Any:
        """Run the body of a class statement. It binds names in ``namespace``. ``classes.build_class`` calls
        this method.
        """
        frame = self.new_frame(fn, (), {})
        frame.names = namespace
        return self.run(frame, None)

    def run_root(
        self,
        fn: FunctionType,
        code: CodeType,
        local_values: dict[str, DeferredLocal],
        stop_at: tuple[int, ...] | None,
    ) -> RootOutcome:
        """Run the root frame to its end or to ``stop_at``. Each attempt to trace the frame calls this once.

        ``stop_at`` is the ``path`` of the GraphBreak that ended an earlier attempt, or None.
        """
        self._break_path = BreakPath(stop_at or ())
        self._root_count = 0
        program = self.programs.of(code)
        closure = self.trace.objects.function_parts(fn)[2]
        frame = Frame(self, fn, program, [local_values.get(name, NULL) for name in program.names], closure)
        frame.code = code
        self.tracing = True
        self.enter(frame)
        try:
            return self._root_loop(frame)
        except Reached:
            return self._break_path.stopped(self.handled.value)
        except GraphBreak as reason:
            self.locate(reason)
            reason.leave(frame, self.root_step, is_linked=True)
            raise
        finally:
            self.tracing = False
            self.frame = frame.back

    @property
    def root_step(self) -> int:
        """Number of the root frame's current step in order of execution, from 0. Repetitions in a loop count.

        A graph break records the number, so that a later attempt can stop there.
        """
        return self._root_count - 1

    # --- the loop --------------------------------------------------------------------------------

    def run(self, frame: Frame, error: BaseException | None) -> Any:
        """Run a frame until it returns or yields.

        If ``error`` is given, the frame begins by raising it at its current step.
        """
        self.enter(frame)
        steps = self.steps_of(frame.program, defers=frame.defers)
        pc = frame.pc
        count = 0
        stop_at = self._break_path.step_in(frame)
        try:
            while True:
                try:
                    if error is not None:
                        raise error  # noqa: TRY301 - enters the handler below
                    while True:
                        frame.pc = pc
                        if count == stop_at:
                            self._break_path.arrive(frame)
                        count += 1
                        handler, operand = steps[pc]
                        target = handler(frame, operand)
                        if target is None:
                            pc += 1
                        elif target >= 0:
                            pc = target
                        else:
                            if self.return_lines is not None:
                                self.return_lines[frame.code] = frame.line
                            return frame.stack.pop()
                except GraphBreak as reason:
                    self.locate(reason)
                    leave(frame, reason, count - 1)
                    raise
                except BaseException as raised:
                    error = raised
                pc = self.unwind(frame, error)
                error = None
        finally:
            error = None  # the traceback would keep this frame alive
            self.frame = frame.back
            if frame.suspended:
                # the caller may hold the generator, and a cycle would keep the generator open
                frame.back = None

    def _root_loop(self, frame: Frame) -> RootOutcome:
        """Run the root frame as ``run`` runs other frames, and count its steps for ``root_step``.

        An exception that the frame does not handle is returned as an outcome. Raising it again would change
        its traceback.
        """
        steps = self.steps_of(frame.program, defers=True)
        stop_at = self._break_path.root_step
        pc = 0
        while True:
            try:
                while True:
                    frame.pc = pc
                    if self._root_count == stop_at:
                        self._break_path.arrive(frame)
                    self._root_count += 1
                    handler, operand = steps[pc]
                    target = handler(frame, operand)
                    if target is None:
                        pc += 1
                    elif target >= 0:
                        pc = target
                    else:
                        return self._take_result(frame)
            except GraphBreak:
                raise
            except BaseException as raised:
                error = raised
            if frame.program.handlers[pc] is None:
                self.account(frame, error)
                return Raised(error)
            pc = self.unwind(frame, error)
            del error  # the traceback would keep frames alive

    def _take_result(self, frame: Frame) -> Returned:
        """Unbind the local variables of the finished root frame, and return its result.

        Unbinding closes generators that only this frame holds. Closing a generator may run code of the
        program.
        """
        value = frame.stack.pop()
        slots = range(len(frame.fast))
        for index in reversed(slots) if frame.program.behaviour.clears_backwards else slots:
            frame.fast[index] = NULL
        self.raise_pending()
        return Returned(value)

    def steps_of(self, program: Program, *, defers: bool = False) -> tuple[Step, ...]:
        """Return the steps with which this trace runs a program. Variants of steps may defer values or call
        polyfills.

        ``defers``: arguments of the frame are deferred locals.
        """
        if not (defers or self.trace.plan.polyfills or self.trace.options.reorderable_functions):
            return program.steps
        entry = self._changed.get((id(program), defers))
        if entry is None:
            steps = wrapping(program.steps, program.names) if defers else program.steps
            entry = self._changed[id(program), defers] = program, steps_of_trace(self.trace, steps)
        return entry[1]

    def enter(self, frame: Frame) -> None:
        """Make ``frame`` the current frame. Break the graph if the calls are nested too deeply.

        Called before the first step of a frame, and before the frame of a generator continues.
        """
        back = self.frame
        frame.back = back
        frame.depth = depth = 0 if back is None else back.depth + 1
        if depth > self.trace.options.inline_limit:
            raise graph_break("inline-limit", f"{depth} nested calls")
        self.raise_pending()
        self.frame = frame
        self.handles = self.handles or frame.program.protects

    def receivers(self) -> tuple[tuple[int, int], ...]:
        """Return a key for the set of the program's blocks that can act on an exception of the current
        instruction.

        Equal keys mean the same blocks. ``Assumptions.note_data_checks`` groups calls by this key.
        """
        keys: list[tuple[int, int]] = []
        frame = self.frame
        while frame is not None:
            keys += frame.receivers()
            frame = frame.back
        return tuple(keys)

    def raise_pending(self) -> None:
        """Raise the graph break that ``close_dropped`` has kept. No exception can leave a destructor."""
        if self._pending_break is not None:
            raise self._pending_break

    def unwind(self, frame: Frame, error: BaseException) -> int:
        """Return the index of the step that handles ``error``.

        If ``frame`` has no handler, raise ``error`` again.
        """
        self.account(frame, error)
        handler = frame.program.handlers[frame.pc]
        if handler is None:
            raise error
        self._flight = None
        stack = frame.stack
        del stack[handler.depth :]
        if frame.program.continues:
            settle(frame)
        if handler.lasti:
            # CPython pushes the index of the instruction in code units of two bytes.
            stack.append(frame.program.offsets[frame.pc] // 2)
        stack.append(error)
        return handler.target

    # --- exceptions ------------------------------------------------------------------------------

    def account(self, frame: Frame, error: BaseException) -> None:
        """Set the context and traceback of an exception in ``frame`` to the values that the program sees.

        Python's own ``raise`` inside of the interpreter has changed them before.
        """
        flight = self._flight
        if isinstance(error, InterruptedTracing):
            raise error
        if flight is None or flight.error is not error:
            if isinstance(error, KeyboardInterrupt):
                # The user interrupts the tracer. The program did not raise this exception.
                raise InterruptedTracing
            if isinstance(error, RecursionError):
                # Either the tracer or the program has reached the limit. Plain Python shows which.
                raise graph_break("inline-limit", "the recursion limit was reached")
            if isinstance(error, GuardOnDataDependentSymNode):
                text = f"a number computed from a tensor ({error.cond})"
                raise graph_break("data-dependent-branch", text)
            demand_program(error)
            name_types_as_outside(error)
            chain_context(error, self.handled.topmost())
            traceback = None
        else:
            traceback = flight.traceback
            if flight.anew:
                chain_context(error, self.handled.topmost())
            elif error.__context__ is not flight.context:
                set_context(error, flight.context)
        counted = flight is not None and flight.error is error and flight.counted
        if not counted and not frame.program.hidden:
            traceback = add_entry(traceback, frame.program.traceback_stub, frame.line)
        set_traceback(error, traceback)
        self._flight = Flight(error, traceback)

    def raising(self, error: BaseException) -> BaseException:
        """Return ``error``, an exception that a ``raise`` of the program raises here.

        ``account`` then adds the context and a traceback entry.
        """
        self._flight = Flight(error, error.__traceback__, anew=True)
        return error

    def reraising(self, error: BaseException, *, counted: bool = True) -> BaseException:
        """Return ``error``, an exception that propagates. It is not raised anew, so ``account`` keeps its
        context.

        ``counted``: the traceback already has an entry for the current frame.
        """
        self._flight = Flight(error, error.__traceback__, counted=counted)
        return error

    def raises(self, error: BaseException) -> bool:
        """Return whether ``error`` is the exception that a frame of the program raised last."""
        return self._flight is not None and self._flight.error is error

    def demand_program(self, error: BaseException) -> None:
        """Raise GraphBreak if a failure of the compiler raised ``error`` (``exceptions.origins``)."""
        if not self.raises(error):
            demand_program(error)

    def dealt_with(self, error: BaseException) -> None:
        """Record that a rule handles ``error``, for example a missing attribute or the end of a loop.

        Raises GraphBreak if a failure of the compiler raised ``error``.
        """
        self.demand_program(error)
        self._flight = None

    def locate(self, reason: GraphBreak) -> None:
        """Record the program's stack in ``reason``. Called when the graph break leaves the innermost frame."""
        self.tracing = False
        if not reason.record.stack:
            positions = () if self.frame is None else self.frame.user_positions()
            reason.record = dataclasses.replace(reason.record, stack=self.user_stack(), positions=positions)

    def close_dropped(self, generator: TraceGenerator) -> None:
        """Close a generator whose last reference has been dropped. ``TraceGenerator.__del__`` calls this
        method.

        As in CPython, exceptions of the generator are lost.
        """
        flight = self._flight
        try:
            generator.close()
        except GraphBreak as reason:
            # An exception cannot leave a destructor. The next call raises this graph break.
            self._pending_break = reason
        except BaseException as error:
            self._pending_break = unraisable(error)
        self._flight = flight

    # --- queries of other modules ----------------------------------------------------------------

    def current_frame(self) -> Frame:
        """Return the innermost interpreted frame, for rules of functions that read the calling frame. Break
        the graph if there is none.
        """
        if self.frame is None:
            raise graph_break("tracing-error", "a frame was asked for outside of interpreted code")
        return self.frame

    def truth_of_result(self, value: object) -> bool:
        """Return the truth of the result of the current step, for the rule of ``bool``.

        For a tensor, this may be the truth that a check assumes (``checks``).
        """
        frame = self.current_frame()
        return truth_of_check(frame, value, frame.pc + 1)

    def user_stack(self) -> tuple[tuple[str, int, str], ...]:
        """Return (file, line, qualified function name) of the interpreted frames, innermost last."""
        return () if self.frame is None else self.frame.user_stack()

    def module_stack(self) -> dict[str, tuple[str, str]]:
        """Return the modules whose ``forward`` runs now, as a ``ModuleStack``. Node metadata contains it."""
        return {} if self.frame is None else self.frame.module_stack()
