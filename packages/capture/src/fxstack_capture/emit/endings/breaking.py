"""Replacements of frames that end in a graph break. The operation runs for real; then a resume function
continues.

The graph may have broken in an inlined call. The replacement then calls the operation through stubs of the
frames between the root and the break (``levels``). The stubs are on the Python stack, so that the operation
finds its callers. Each frame gets a resume function; the resume function of a caller calls that of its
callee. An exception of the operation is raised again in the innermost frame that handles it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType

from fxstack_capture.bytecode.assemble import Protected
from fxstack_capture.emit.builder import call, item, load, store, tuple_of
from fxstack_capture.emit.endings.break_frames import Level, handled_exceptions, levels_of, original_of
from fxstack_capture.emit.endings.steps import Exit
from fxstack_capture.emit.endings.stub import Stub, looks_at_frame, make_frame_stub, make_stub
from fxstack_capture.emit.errors import CannotResumeError
from fxstack_capture.emit.frame import Draft, FrameWriter, with_cycles
from fxstack_capture.emit.rebuild.functions import namespace
from fxstack_capture.emit.rebuild.rebuilder import Rebuilder
from fxstack_capture.emit.resume import (
    Callee,
    ResumePoint,
    Resumptions,
    Slot,
    bound_order,
    first_argument,
    free_variables,
)
from fxstack_capture.emit.runtime import Continue, without_frames
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.trace.records import Stopped
from fxstack_capture.trace.state import Trace
from fxstack_interchange.bytecode import Kind

_Item = tuple[Slot, ast.expr | None]
"""The kind of a stack value, and its expression.

The expression is None for a value that no argument carries, such as a NULL.
"""


def draft_stop(
    trace: Trace, frame: RealFrame, code: CodeType, stopped: Stopped, resumptions: Resumptions
) -> Draft:
    """Return the replacement of a frame that stopped before an instruction.

    The driver calls this when an attempt ended in a graph break. Raises CannotResumeError,
    CannotRebuildError.
    """
    levels = levels_of(trace, stopped, resumptions)
    stub = _stub(levels[-1], resumptions)
    root = levels[0]
    line = root.step.ops[-1].position[0] or root.user.co_firstlineno

    def write(early: bool) -> Draft:
        """Return the draft. ``early`` is the argument of ``Rebuilder``."""
        writer = FrameWriter(trace, frame, code, early)
        ending = _Ending(writer, levels, stub, resumptions)
        return writer.finish(ending.statements, line, _released_arguments(trace, frame, stopped))

    return with_cycles(write)


def _released_arguments(trace: Trace, frame: RealFrame, stopped: Stopped) -> tuple[str, ...]:
    """Return the names of the arguments whose variables the root frame has deleted or bound to other objects."""
    # Plain Python would not keep these arguments alive during the operation.
    root = stopped.frames[0]
    return tuple(
        name
        for name, argument in frame.arguments.items()
        if name not in root.cells and original_of(trace, root.local_values.get(name)) is not argument
    )


def _stub(level: Level, resumptions: Resumptions) -> Stub:
    """Make the stub of the operation that broke the graph. Register its code as code that is never traced.
    Raises CannotResumeError if the handled exception is an operand.
    """
    bottom = level.taken - level.step.reads_below
    slots = level.slots
    handled = tuple(slot for slot in slots[:bottom] if slot is Slot.HANDLED)
    if Slot.HANDLED in slots[level.taken :] or Slot.CAUGHT in slots[level.taken :]:
        raise CannotResumeError(f"{level.step.ops[-1].name} has the handled exception among its operands")
    reads = Kind.READS_LOCAL in level.step.ops[-1].kind
    inspected = reads or looks_at_frame(level.state.stack[level.taken :])
    variables = bound_order(level.user, frozenset(level.state.local_values))
    kept = len(handled) + level.step.reads_below
    stub = make_stub(
        level.user, level.step, (*handled, *slots[bottom:]), kept, variables if inspected else None
    )
    resumptions.unsafe_to_trace(stub.code)
    return stub


def _passed_values(stack: list[_Item]) -> list[ast.expr]:
    """Return the expressions of the stack values that the resume function gets as arguments."""
    return [value for _, value in stack if value is not None]


def _slots(stack: list[_Item]) -> tuple[Slot, ...]:
    """Return the kinds of the stack values."""
    return tuple(slot for slot, _ in stack)


@dataclass(frozen=True, slots=True)
class _Values:
    """Expressions for the parts of a frame: stack, variables and cells by name, and the globals."""

    stack: list[_Item]
    """The kind and the expression of each stack value, the bottom first."""
    variables: dict[str, ast.expr]
    cells: dict[str, ast.expr]
    first: list[ast.expr]
    """The first argument of the frame's function, if ``super()`` reads it and it is in a cell; otherwise the
    list is empty.
    """
    namespace: ast.expr
    """The expression of the globals."""

    @property
    def closure(self) -> list[ast.expr]:
        """Return the cells in the order of ``co_freevars``."""
        return [self.cells[name] for name in sorted(self.cells)]


def _values(rebuilder: Rebuilder, level: Level, shown: tuple[str, ...]) -> _Values:
    """Emit the stack, the variables and the cells of a frame, and return their expressions. Raises
    CannotResumeError if the frame has not created its cells yet.

    ``shown`` are the names of the variables that the stub has as its own, because the operation may read
    them.
    """
    state = level.state
    handled = iter(handled_exceptions(state, level.slots))
    stack: list[_Item] = []
    for slot, value in zip(level.slots, state.stack, strict=True):
        passed = next(handled) if slot is Slot.HANDLED else value
        stack.append((slot, rebuilder.expr(passed) if slot.is_passed else None))
    needed = level.live_after() | set(shown)
    variables = {name: rebuilder.expr(value) for name, value in state.local_values.items() if name in needed}
    free = free_variables(level.user)
    if any(name not in state.cells for name in free):
        raise CannotResumeError("the frame has not created its cells yet")
    cells = {name: rebuilder.expr(state.cells[name]) for name in free}
    first: list[ast.expr] = []
    name = first_argument(level.user)
    if name in cells and not _is_empty(state.cells[name]):
        first.append(ast.Attribute(cells[name], "cell_contents", ast.Load()))
    return _Values(stack, variables, cells, first, namespace(rebuilder, state.namespace))


def _is_empty(cell: CellType) -> bool:
    """Return whether the cell is empty: its variable is unbound."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


class _Ending:
    """Writer of the end of a frame after a graph break.

    The constructor builds every value that leaves the trace. ``statements`` returns the code that follows the
    side effects.
    """

    def __init__(
        self, writer: FrameWriter, levels: tuple[Level, ...], stub: Stub, resumptions: Resumptions
    ) -> None:
        self._writer = writer
        self._levels = levels
        self._stub = stub
        self._resumptions = resumptions
        rebuilder = writer.rebuilder
        inner = len(levels) - 1
        self._values = [
            _values(rebuilder, level, stub.variables if depth == inner else ())
            for depth, level in enumerate(levels)
        ]
        self._left = writer.builder.fresh("left")
        self._function_type = rebuilder.constant(FunctionType, "FunctionType")
        self._continue = rebuilder.constant(Continue, "Continue")

    # --- statements ------------------------------------------------------------------------------

    def statements(self, _: FrameWriter) -> list[ast.stmt]:
        """Return the statements that run the operation. Its exit then selects the resume function to call."""
        run: list[ast.stmt] = [ast.Assign([store(self._left)], self._operation())]
        run = self._catch_errors(run)
        level = self._levels[-1]
        exits = level.step.exits
        last = self._return_continuation(*self._after(exits[-1]))
        if len(exits) > 1:
            tag = item(load(self._left), ast.Constant(-1))
            first = self._return_continuation(*self._after(exits[0]))
            last = [ast.If(ast.Compare(tag, [ast.Eq()], [ast.Constant(0)]), first, last)]
        return [*run, *last]

    def _operation(self) -> ast.expr:
        """Return the call of the operation's stub. The stubs of the frames between the root and the break
        make this call.
        """
        level, values = self._levels[-1], self._values[-1]
        bottom = level.taken - level.step.reads_below
        handled = [i for i in values.stack[:bottom] if i[0] is Slot.HANDLED]
        operands = _passed_values([*handled, *values.stack[bottom:]])
        shown = [values.variables[name] for name in self._stub.variables]
        function, arguments = self._function(values, self._stub.code), [*shown, *operands]
        between = [d for d in range(1, len(self._levels) - 1) if not self._levels[d].hidden]
        for depth in reversed(between):
            function, arguments = self._between(depth, function, arguments)
        result = call(function, *arguments)
        for _ in between:
            result = item(result, ast.Constant(0))
        return result

    def _between(
        self, depth: int, function: ast.expr, arguments: list[ast.expr]
    ) -> tuple[ast.expr, list[ast.expr]]:
        """Return the stub of the inlined frame at ``depth``, and the arguments of the stub.

        The stub calls ``function`` with ``arguments``, so that the operation finds this frame on the Python
        stack.
        """
        level, values = self._levels[depth], self._values[depth]
        handled = [entry for entry in values.stack if entry[0] is Slot.HANDLED]
        slots = tuple(slot for slot, _ in handled)
        code = make_frame_stub(level.user, level.step.ops[-1].position, slots)
        self._resumptions.unsafe_to_trace(code)
        stub = self._function(values, code)
        return stub, [*_passed_values(handled), function, tuple_of(arguments)]

    def _function(self, values: _Values, code: CodeType) -> ast.expr:
        """Return the expression that makes a function of ``code`` with the globals and cells of the frame."""
        closure: ast.expr = ast.Constant(None)
        if code.co_freevars:
            closure = tuple_of(values.closure)
        constant = self._writer.builder.constant(code, f"code_{code.co_name}")
        nothing = ast.Constant(None)
        name = ast.Constant(code.co_name)
        return call(self._function_type, constant, values.namespace, name, nothing, closure)

    # --- continuing ------------------------------------------------------------------------------

    def _after(self, exit: Exit) -> tuple[CodeType, list[ast.expr]]:
        """Return the code of the root's resume function for an exit of the operation, and the arguments of
        this function.
        """
        level, values = self._levels[-1], self._values[-1]
        results: list[_Item] = []
        for null in exit.results:
            count = len(_passed_values(results))
            value = item(load(self._left), ast.Constant(count))
            results.append((Slot.NULL, None) if null else (Slot.VALUE, value))
        stack = [*values.stack[: level.taken], *results]
        bound = self._bound(-1, level.live_at(exit.next))
        point = ResumePoint(exit.next.offset, _slots(stack), bound, first=bool(values.first))
        return self._from_root(len(self._levels) - 1, point, _passed_values(stack))

    def _resume_in_handler(
        self, depth: int, entry: Protected, error: ast.expr
    ) -> tuple[CodeType, list[ast.expr]]:
        """Return the code of the root's resume function after an exception, and the arguments of this
        function.

        The frame at ``depth`` catches the exception in its protected range ``entry``. ``error`` is the
        expression of the exception. The exception has ended the frames below ``depth``.
        """
        level = self._levels[depth]
        values = self._values[depth]
        stack = values.stack[: entry.depth]
        bound = self._bound(depth, level.live_at(entry.handler))
        point = ResumePoint(level.op.offset, _slots(stack), bound, raising=True, first=bool(values.first))
        return self._from_root(depth, point, [*_passed_values(stack), error])

    def _bound(self, depth: int, live: set[str]) -> tuple[str, ...]:
        """Return the names in ``live`` whose variables have values in the frame at ``depth``.

        The names have the order of the resume function's arguments.
        """
        variables = self._values[depth].variables
        return bound_order(self._levels[depth].user, frozenset(live & variables.keys()))

    def _from_root(
        self, depth: int, point: ResumePoint, rest: list[ast.expr]
    ) -> tuple[CodeType, list[ast.expr]]:
        """Return the code of the root's resume function, and the arguments of this function.

        The frame at ``depth`` continues at ``point``. Its resume function takes the variables and then
        ``rest``. The resume function of each caller calls the next one.
        """
        arguments = self._arguments(depth, point, rest)
        while depth > 0:
            inner, inner_values = self._levels[depth], self._values[depth]
            depth -= 1
            level = self._levels[depth]
            callee = Callee(
                inner.user,
                self._writer.trace.objects.original_of(inner.state.namespace),
                id(self._writer.trace.objects.original_of(inner.state.namespace)),
                point,
                level.op.offset,
                level.results,
                level.has_result,
                None if level.end is None else level.end.offset,
            )
            values = self._values[depth]
            bound = self._bound(depth, level.live_after())
            following = level.following.offset
            first = bool(values.first)
            point = ResumePoint(following, _slots(values.stack), bound, callee=callee, first=first)
            rest = [*_passed_values(values.stack), *inner_values.closure, *arguments]
            arguments = self._arguments(depth, point, rest)
        return self._resumptions.at(self._levels[0].user, point).code, arguments

    def _arguments(self, depth: int, point: ResumePoint, rest: list[ast.expr]) -> list[ast.expr]:
        """Return the arguments of the resume function for ``point``: first argument, variables, then ``rest``."""
        values = self._values[depth]
        return [*values.first, *(values.variables[name] for name in point.bound), *rest]

    def _return_continuation(self, code: CodeType, arguments: list[ast.expr]) -> list[ast.stmt]:
        """Return the statement that continues the frame with the resume function ``code``.

        The C extension makes the call after the frame of the replacement has ended.
        """
        function = self._function(self._values[0], code)
        return [ast.Return(call(self._continue, tuple_of((function, tuple_of(arguments)))))]

    # --- exceptions ------------------------------------------------------------------------------

    def _catch_errors(self, run: list[ast.stmt]) -> list[ast.stmt]:
        """Return ``run`` with handlers for the exceptions of the operation.

        If the operation is inside of a ``try`` or ``with`` block of the user, the innermost such block gets
        the exception. Otherwise the exception leaves the frame with the traceback of plain Python.
        """
        handlers = [(d, level.handler) for d, level in enumerate(self._levels)]
        inside = [(depth, entry) for depth, entry in handlers if entry is not None]
        builder = self._writer.builder
        trim = builder.constant(without_frames, "without_frames")
        base = builder.constant(BaseException, "BaseException")
        caught, kept = builder.fresh("error"), builder.fresh("raised")
        if not inside:
            if len(self._levels) > 1:
                return run
            # The stub and the replacement together represent one frame. Raising the exception again adds the
            # frame to the traceback.
            reraise = ast.Raise(call(trim, load(caught), ast.Constant(2)))
            return [ast.Try(run, [ast.ExceptHandler(base, caught, [reraise])], [], [])]
        depth, entry = inside[-1]
        # The continuation takes the exception out of a list. A variable with the exception would make a reference
        # cycle: the frames of the traceback lead to the frame of the replacement.
        keep: ast.stmt = ast.Assign([store(kept)], ast.List([load(caught)], ast.Load()))
        handler = ast.ExceptHandler(base, caught, [keep])
        none: ast.stmt = ast.Assign([store(kept)], ast.Constant(None))
        raised = ast.Compare(load(kept), [ast.IsNot()], [ast.Constant(None)])
        # The frame that raises the exception again adds itself to the traceback. At the root, the stub and
        # the replacement represent one frame.
        shown = sum(not level.hidden for level in self._levels[: depth + 1])
        frames = shown if len(self._levels) > 1 else 2
        error = call(trim, call(ast.Attribute(load(kept), "pop", ast.Load())), ast.Constant(frames))
        return [
            none,
            ast.Try(run, [handler], [], []),
            ast.If(raised, self._return_continuation(*self._resume_in_handler(depth, entry, error)), []),
        ]
