"""Resume functions, which continue a frame from the middle: the user's bytecode after a new prologue.

A resume function takes the bound variables and the stack values as arguments. The prologue pushes the stack
values and jumps to the instruction where the frame continues. Cells arrive in the closure. A resume function
is always made from the code that the user wrote. If the graph breaks inside of a resume function, another
resume function of the same user code continues.

If the graph broke in an inlined call, the caller's resume function first calls the callee's resume function.
The caller's resume function takes its own arguments, then the arguments of the callee's resume function. When
the caller's resume function is traced, the rest of the callee is inlined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import chain
from types import CodeType, FunctionType

from fxstack_capture.bytecode import build
from fxstack_capture.bytecode.assemble import Body, Op, Protected, read
from fxstack_capture.bytecode.flow import Flow, flow_of, handler_of
from fxstack_capture.bytecode.layout import Layout, assemble, move, prologue
from fxstack_capture.bytecode.units import slot_names
from fxstack_capture.emit.errors import CannotResumeError
from fxstack_capture.emit.runtime import not_nothing
from fxstack_capture.interpreter.polyfills import End

# No variable of the user has a dot in its name, so these names are free in every frame.
STACK_ARGUMENT = ".stack{}"
EXCEPTION_ARGUMENT = ".exception"
FIRST_ARGUMENT = ".first"
INNER_ARGUMENT = ".inner{}"


class Slot(Enum):
    """The kind of value in one stack slot of a stopped frame."""

    VALUE = "value"
    NULL = "null"
    HANDLED = "handled"
    """The value from which an ``except`` block restores the exception state when the block ends.

    The argument for this slot carries the exception that the block handles.
    """
    UNUSED = "unused"
    """A NULL below the operands of the instruction. Its slot may hold any value that can be popped."""
    CAUGHT = "caught"
    """The handled exception itself, above HANDLED, while the ``except`` clauses match it."""

    @property
    def is_passed(self) -> bool:
        """Whether an argument of the resume function carries the value."""
        return self in (Slot.VALUE, Slot.HANDLED)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The point at which a frame continues. Equal points of a frame share a resume function."""

    offset: int
    """The instruction at which the frame continues, as offset in the user's bytecode."""
    stack: tuple[Slot, ...]
    """The kinds of the stack values, the bottom first."""
    bound: tuple[str, ...]
    """The names of the variables that have values and are passed as arguments, in the order of the arguments."""
    raising: bool = False
    """Whether the resume function first raises an exception at the instruction.

    If so, the stack has only the values that the handler of the exception keeps.
    """
    callee: Callee | None = None
    """The inlined call that the resume function finishes first, or None."""
    first: bool = False
    """Whether the user's first argument, which is in a cell, is passed as an argument too. ``super()`` reads
    it.
    """


@dataclass(frozen=True, slots=True)
class Callee:
    """The inlined call that a frame waits for. ``namespace`` is the callee's globals."""

    user: CodeType
    """The code of the callee that the user wrote."""
    namespace: dict[str, object] = field(compare=False, repr=False)
    namespace_id: int
    """The id of ``namespace``. Comparisons use it, because dictionaries have no hash."""
    point: ResumePoint
    """Where the callee continues."""
    offset: int
    """The caller's call instruction, as offset in the caller's bytecode."""
    results: tuple[bool, ...]
    """Describes the values that the call instruction leaves: True for a NULL, False for the value of the
    call.
    """
    has_result: bool
    """Whether the value of the call is already on the stack.

    This is true for ``__init__``, which must return None.
    """
    end: int | None
    """The offset where the caller continues if the call ends a ``for`` loop. None if the call is not part of
    a loop.

    The iterator is then popped.
    """

    @property
    def inputs(self) -> int:
        """Number of values that the callee's resume function needs: the cells of its closure, then its arguments."""
        return len(free_variables(self.user)) + len(arguments_of(self.point))


def free_variables(user: CodeType) -> tuple[str, ...]:
    """Return the names of the cell variables and free variables of the user's frame, sorted.

    All of them are free variables of a resume function.
    """
    return tuple(sorted({*user.co_cellvars, *user.co_freevars}))


def first_argument(user: CodeType) -> str | None:
    """Return the name of the variable that ``super()`` without arguments reads in ``user``. None if ``user``
    has no ``super``.
    """
    return user.co_varnames[0] if "super" in user.co_names and user.co_argcount else None


def arguments_of(point: ResumePoint) -> tuple[str, ...]:
    """Return the argument names of the resume function for ``point``, in order.

    These are the first argument, the variables, the stack values, the exception, and the values for the callee.
    """
    first = (FIRST_ARGUMENT,) if point.first else ()
    extra = (EXCEPTION_ARGUMENT,) if point.raising else ()
    count = 0 if point.callee is None else point.callee.inputs
    inner = tuple(INNER_ARGUMENT.format(i) for i in range(count))
    return (*first, *point.bound, *stack_arguments(point.stack), *extra, *inner)


@dataclass(frozen=True, slots=True)
class Resumption:
    """The code of a resume function, which continues ``user`` at ``point``."""

    code: CodeType
    user: CodeType
    point: ResumePoint
    origin: dict[int, int]
    """Maps offsets in ``code`` to offsets in the user's code. Offsets in the prologue are missing."""
    calling: tuple[int, int] | None
    """Two offsets: the prologue's call of the callee's resume function, and the user's call that it stands
    for.

    None without a callee.
    """


class Resumptions:
    """The resume functions, by the user's code object and resume point.

    The functions live as long as this table. ``never_trace`` is called with the code of each stub, because
    stubs must not be traced.
    """

    def __init__(self, never_trace: Callable[[CodeType], None]) -> None:
        """``never_trace`` is called with the code of each stub, because stubs must not be traced."""
        self.unsafe_to_trace = never_trace
        self._made: dict[tuple[int, ResumePoint], Resumption] = {}
        self._by_code: dict[int, Resumption] = {}
        self._flows: dict[int, tuple[CodeType, Flow]] = {}

    def at(self, user: CodeType, point: ResumePoint) -> Resumption:
        """Return the resume function that continues ``user`` at ``point``. The first request makes it."""
        key = id(user), point
        resumed = self._made.get(key)
        if resumed is None:
            callee = point.callee
            inner = None if callee is None else self.at(callee.user, callee.point).code
            resumed = self._made[key] = resumption(user, point, inner)
            self._by_code[id(resumed.code)] = resumed
        return resumed

    def flow(self, user: CodeType) -> Flow:
        """Return the user's instructions and the live variables.

        The result is shared, so callers must not change it.
        """
        entry = self._flows.get(id(user))
        if entry is None:
            entry = self._flows[id(user)] = (user, flow_of(read(user), user))
        return entry[1]

    def of(self, code: CodeType) -> Resumption | None:
        """Return the resumption of ``code``, or None if the user wrote ``code``."""
        return self._by_code.get(id(code))

    def user_of(self, code: CodeType) -> CodeType:
        """Return the user's code object of ``code``: the code that ``code`` continues, or ``code`` itself.

        The driver keeps its records by this object.
        """
        resumed = self.of(code)
        return code if resumed is None else resumed.user

    def clear(self) -> None:
        """Forget all resume functions.

        The driver calls this when the program resets the compiler, for example by ``torch.compiler.reset``.
        """
        self._made.clear()
        self._by_code.clear()
        self._flows.clear()


def resumption(user: CodeType, point: ResumePoint, inner: CodeType | None = None) -> Resumption:
    """Make the code that continues ``user`` at ``point``.

    ``inner`` is the code of the callee's resume function, or None without a callee.
    """
    body = read(user)
    free = free_variables(user)
    arguments = arguments_of(point)
    rest = tuple(n for n in user.co_varnames if n not in point.bound and n not in free)
    layout = Layout(arguments, rest, free)
    move(body, slot_names(user), layout)
    target = body.ops[body.at(point.offset)]
    waiting = target if point.callee is None else body.ops[body.at(point.callee.offset)]
    handler = handler_of(body, waiting)
    entry = None if handler is None else body.protected[handler]
    # The original RESUME has no effect here. It stays because protected ranges may begin at it.
    first = body.start
    start = prologue(layout)
    start += push(point.stack, layout, body.protected)
    constants: tuple[object, ...] = ()
    if point.raising:
        _raise(body, start, layout, entry, body.ops[first])
    elif point.callee is not None:
        assert inner is not None
        call, constants = _call(body, layout, point.callee, user, inner)
        start += _protect(body, call, entry)
    if not point.raising:
        start.append(build.jump(target))
    # The prologue gets the line of the instruction at which the frame waits. Tracebacks show this line.
    for op in start:
        op.position = waiting.position
    body.ops[:first] = start
    stack = user.co_stacksize + len(arguments) + len(point.stack) + 6
    code, assembled = assemble(user, body, layout, stack, constants)
    origin = dict(assembled.origin)
    calling = None if point.callee is None else (min(origin), origin.pop(min(origin)))
    return Resumption(code, user, point, origin, calling)


def _protect(body: Body, ops: list[Op], entry: Protected | None) -> list[Op]:
    """Protect ``ops``, instructions of the prologue, by the handler of ``entry``. Return ``ops``."""
    if entry is None:
        return ops
    end = build.nop()
    body.protected.append(Protected(ops[0], end, entry.handler, entry.depth, entry.lasti))
    return [*ops, end]


def _call(
    body: Body, layout: Layout, callee: Callee, user: CodeType, inner: CodeType
) -> tuple[list[Op], tuple[object, ...]]:
    """Return the instructions that call the callee's resume function ``inner``, and the constants of these
    instructions.

    The new constants come after the user's constants.
    """
    maker = partial(FunctionType, inner, callee.namespace, inner.co_name, None)
    constants = (maker, None, not_nothing, End)
    make, none, wrong, ended = (build.constant(len(user.co_consts) + i) for i in range(len(constants)))
    inputs = [build.take(layout.slot(INNER_ARGUMENT.format(i))) for i in range(callee.inputs)]
    cells = len(free_variables(callee.user))
    closure = [*chain(*inputs[:cells]), build.make_tuple(cells)] if cells else [none]
    count = len(inputs) - cells
    function = build.call([make], closure, 1)
    ops = build.call(function, [*chain(*inputs[cells:])], count, callee.offset)
    if callee.has_result:
        end = build.pop()
        error = [*build.call_with_top(wrong), build.throw()]
        return [*ops, build.copy(1), build.jump_if_none(end), *error, end], constants
    if not callee.results:  # a store ignores the result of the call
        return [*ops, build.pop()], constants
    if callee.end is not None:
        target, goes_on = body.ops[body.at(callee.end)], build.nop()
        ops += [build.copy(1), ended, build.is_same(), build.jump_if_false(goes_on)]
        ops += [build.pop(), build.pop(), build.jump(target), goes_on]
    if callee.results[0]:
        ops += [build.null(), build.swap(2)]
    if callee.results[-1]:
        ops.append(build.null())
    return ops, constants


def stack_arguments(slots: tuple[Slot, ...]) -> tuple[str, ...]:
    """Return the names of the arguments that carry stack values.

    A slot that no argument carries, such as a NULL, has no name.
    """
    return tuple(STACK_ARGUMENT.format(i) for i, slot in enumerate(slots) if slot.is_passed)


def push(slots: tuple[Slot, ...], layout: Layout, protected: list[Protected]) -> list[Op]:
    """Return the instructions that restore the stack from the arguments.

    New protected ranges are appended to ``protected``.
    """
    # The prologue raises the exception of an ``except`` block and catches it at once, so that it is the
    # handled exception.
    ops: list[Op] = []
    for index, kind in enumerate(slots):
        if kind is Slot.NULL:
            ops.append(build.null())
        elif kind is Slot.UNUSED:
            ops.append(build.make_tuple(0))
        elif kind.is_passed:
            ops += build.take(layout.slot(STACK_ARGUMENT.format(index)))
        if kind is Slot.HANDLED:
            raising, caught = build.reraise(0), build.begin_handling()
            ops += [raising, caught]
            protected.append(Protected(raising, caught, caught, index, lasti=False))
            if Slot.CAUGHT not in slots[index + 1 : index + 2]:
                ops.append(build.pop())
    return ops


def _raise(body: Body, start: list[Op], layout: Layout, entry: Protected | None, after: Op) -> None:
    """Append to ``start`` the instructions that raise the exception, under the handler of ``entry``.

    The protected range ends before the instruction ``after``.
    """
    if entry is None:
        raise CannotResumeError("no exception handler covers the instruction")
    raising = build.throw()
    start += [*build.take(layout.slot(EXCEPTION_ARGUMENT)), raising]
    body.protected.append(Protected(raising, after, entry.handler, entry.depth, entry.lasti))


def bound_order(user: CodeType, bound: frozenset[str]) -> tuple[str, ...]:
    """Return the names in ``bound`` of variables without cells, in the order of the user's variables.

    The first argument stays first.
    """
    cells = {*user.co_cellvars, *user.co_freevars}
    return tuple(name for name in user.co_varnames if name in bound and name not in cells)
