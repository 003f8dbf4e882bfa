"""Functions that continue a frame from the middle: the user's own operations behind another prologue.

A resume function takes the bound variables and the values on the stack as arguments, puts the latter back on
the stack and jumps to where the frame goes on. Cells arrive in its closure. It is always made from the code
that the user wrote: a break inside of a resume function continues in another one of the same original.

Where the graph broke in an inlined call, the resume function of the caller first calls that of the callee (whose
arguments follow its own): tracing it inlines the callee again, from the break on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import chain
from types import CodeType, FunctionType

from fxstack_capture.bytecode.assemble import Body, Op, Protected, read
from fxstack_capture.bytecode.calls import HAS_PRECALL, JUMP_IF_FALSE, JUMP_IF_NONE, calling, calling_on_top
from fxstack_capture.bytecode.flow import Flow, flow_of, handler_of
from fxstack_capture.bytecode.layout import Layout, assemble, move, prologue
from fxstack_capture.bytecode.units import slot_names
from fxstack_capture.calls.polyfills.functions import End
from fxstack_capture.emit.errors import CannotResumeError
from fxstack_capture.emit.runtime import not_nothing

STACK_ARGUMENT = ".stack{}"
EXCEPTION_ARGUMENT = ".exception"
FIRST_ARGUMENT = ".first"
INNER_ARGUMENT = ".inner{}"


class Slot(Enum):
    """What stands in a place of the stack."""

    VALUE = "value"
    NULL = "null"
    HANDLED = "handled"
    """What an ``except`` block keeps to restore the exception state; the exception it handles is passed."""
    UNUSED = "unused"
    """A NULL below what an operation takes: it may as well be a value, which can be dropped."""
    CAUGHT = "caught"
    """That exception itself, above HANDLED, while it is matched."""

    @property
    def is_passed(self) -> bool:
        """Whether an argument carries it."""
        return self in (Slot.VALUE, Slot.HANDLED)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a frame goes on: ``offset`` in the user's code, what is on the stack, which variables are bound.

    ``raising``: an exception is raised there first, with the stack cut to what its handler keeps.
    ``callee``: an inlined call is brought to its end first. ``first``: the user's first argument, which is in a
    cell, is passed beside it, because ``super()`` looks for it.
    """

    offset: int
    stack: tuple[Slot, ...]
    bound: tuple[str, ...]
    raising: bool = False
    callee: Callee | None = None
    first: bool = False


@dataclass(frozen=True, slots=True)
class Callee:
    """The inlined call that a frame waits for, made by the operation at ``offset`` of the caller.

    ``results``: what the operation leaves besides (True: a NULL), with False where the value comes. ``made``: the
    value lies on the stack already, and the call must return None (``__init__``).
    """

    user: CodeType
    namespace: dict[str, object] = field(compare=False, repr=False)
    namespace_id: int
    place: Place
    offset: int
    results: tuple[bool, ...]
    made: bool
    end: int | None
    """Where the caller goes on, without its iterator, if the value says that a loop has ended."""

    @property
    def inputs(self) -> int:
        """How many values it needs: the cells of its closure, then its arguments."""
        return len(free_variables(self.user)) + len(arguments_of(self.place))


def free_variables(user: CodeType) -> tuple[str, ...]:
    """Cells of the user's frame, own and from outside: free variables of what continues it."""
    return tuple(sorted({*user.co_cellvars, *user.co_freevars}))


def first_argument(user: CodeType) -> str | None:
    """The variable that ``super()`` without arguments would read in ``user``."""
    return user.co_varnames[0] if "super" in user.co_names and user.co_argcount else None


def arguments_of(place: Place) -> tuple[str, ...]:
    """Names of the arguments of the resume function: variables, the stack, what a callee needs."""
    first = (FIRST_ARGUMENT,) if place.first else ()
    extra = (EXCEPTION_ARGUMENT,) if place.raising else ()
    count = 0 if place.callee is None else place.callee.inputs
    inner = tuple(INNER_ARGUMENT.format(i) for i in range(count))
    return (*first, *place.bound, *stack_arguments(place.stack), *extra, *inner)


@dataclass(frozen=True, slots=True)
class Resumption:
    """A resume function's code. ``origin`` maps its offsets to the user's.

    ``calling`` is where the prologue calls the callee, and the user's operation that this stands for.
    """

    code: CodeType
    user: CodeType
    place: Place
    origin: dict[int, int]
    calling: tuple[int, int] | None


class Resumptions:
    """Resume functions by the user's code object and place; they live as long as their owner."""

    def __init__(self, never_trace: Callable[[CodeType], None]) -> None:
        """``never_trace`` is told of code that must run as it is: stubs."""
        self.unsafe_to_trace = never_trace
        self._made: dict[tuple[int, Place], Resumption] = {}
        self._by_code: dict[int, Resumption] = {}
        self._flows: dict[int, tuple[CodeType, Flow]] = {}

    def at(self, user: CodeType, place: Place) -> Resumption:
        key = id(user), place
        made = self._made.get(key)
        if made is None:
            callee = place.callee
            inner = None if callee is None else self.at(callee.user, callee.place).code
            made = self._made[key] = resumption(user, place, inner)
            self._by_code[id(made.code)] = made
        return made

    def flow(self, user: CodeType) -> Flow:
        """The operations of the user's code (not to be changed) and which variables are alive where."""
        found = self._flows.get(id(user))
        if found is None:
            found = self._flows[id(user)] = (user, flow_of(read(user), user))
        return found[1]

    def of(self, code: CodeType) -> Resumption | None:
        """The resumption that ``code`` belongs to; None for code that the user wrote."""
        return self._by_code.get(id(code))

    def user_of(self, code: CodeType) -> CodeType:
        """The program's code, of which ``code`` is all or what follows a graph break."""
        resumed = self.of(code)
        return code if resumed is None else resumed.user

    def clear(self) -> None:
        self._made.clear()
        self._by_code.clear()
        self._flows.clear()


def resumption(user: CodeType, place: Place, inner: CodeType | None = None) -> Resumption:
    """Make the code that continues ``user`` at ``place``; ``inner`` is that of its callee."""
    body = read(user)
    free = free_variables(user)
    arguments = arguments_of(place)
    rest = tuple(n for n in user.co_varnames if n not in place.bound and n not in free)
    layout = Layout(arguments, rest, free)
    move(body, slot_names(user), layout)
    target = body.ops[body.at(place.offset)]
    waiting = target if place.callee is None else body.ops[body.at(place.callee.offset)]
    handler = handler_of(body, waiting)
    entry = None if handler is None else body.protected[handler]
    # The old RESUME stays, unused: protected ranges may begin there.
    first = next(i for i, op in enumerate(body.ops) if op.name == "RESUME")
    start = prologue(layout)
    start += push(place.stack, layout, body.protected)
    constants: tuple[object, ...] = ()
    if place.raising:
        _raise(body, start, layout, entry, body.ops[first])
    elif place.callee is not None:
        assert inner is not None
        call, constants = _call(body, layout, place.callee, user, inner)
        start += _protected(body, call, entry)
    if not place.raising:
        start.append(Op("JUMP_FORWARD", 0, target))
    for op in start:
        op.position = waiting.position
    body.ops[:first] = start
    stack = user.co_stacksize + len(arguments) + len(place.stack) + 6
    code, made = assemble(user, body, layout, stack, constants)
    origin = dict(made.origin)
    calling = None if place.callee is None else (min(origin), origin.pop(min(origin)))
    return Resumption(code, user, place, origin, calling)


def _protected(body: Body, ops: list[Op], entry: Protected | None) -> list[Op]:
    """Operations of the prologue under the handler of ``entry``."""
    if entry is None:
        return ops
    end = Op("NOP")
    body.protected.append(Protected(ops[0], end, entry.handler, entry.depth, entry.lasti))
    return [*ops, end]


def _call(
    body: Body, layout: Layout, callee: Callee, user: CodeType, inner: CodeType
) -> tuple[list[Op], tuple[object, ...]]:
    """Call the function that continues the callee; what this needs as constants behind those of the user."""
    maker = partial(FunctionType, inner, callee.namespace, inner.co_name, None)
    constants = (maker, None, not_nothing, End)
    make, none, wrong, ended = (Op("LOAD_CONST", len(user.co_consts) + i) for i in range(len(constants)))
    slots = [layout.slot(INNER_ARGUMENT.format(i)) for i in range(callee.inputs)]
    inputs = [[Op("LOAD_FAST", slot), Op("DELETE_FAST", slot)] for slot in slots]
    cells = len(free_variables(callee.user))
    closure = [*chain(*inputs[:cells]), Op("BUILD_TUPLE", cells)] if cells else [none]
    count = len(inputs) - cells
    ops = calling(calling([make], closure, 1), [*chain(*inputs[cells:])], count)
    ops[-2 if HAS_PRECALL else -1].offset = callee.offset
    if callee.made:
        end = Op("POP_TOP")
        error = [*calling_on_top(wrong), Op("RAISE_VARARGS", 1)]
        return [*ops, Op("COPY", 1), Op(JUMP_IF_NONE, 0, end), *error, end], constants
    if not callee.results:  # a store has no use for what it is told
        return [*ops, Op("POP_TOP")], constants
    if callee.end is not None:
        target, goes_on = body.ops[body.at(callee.end)], Op("NOP")
        ops += [Op("COPY", 1), ended, Op("IS_OP", 0), Op(JUMP_IF_FALSE, 0, goes_on)]
        ops += [Op("POP_TOP"), Op("POP_TOP"), Op("JUMP_FORWARD", 0, target), goes_on]
    if callee.results[0]:
        ops += [Op("PUSH_NULL"), Op("SWAP", 2)]
    if callee.results[-1]:
        ops.append(Op("PUSH_NULL"))
    return ops, constants


def stack_arguments(slots: tuple[Slot, ...]) -> tuple[str, ...]:
    """Names of the arguments that carry values of the stack."""
    return tuple(STACK_ARGUMENT.format(i) for i, slot in enumerate(slots) if slot.is_passed)


def push(slots: tuple[Slot, ...], layout: Layout, protected: list[Protected]) -> list[Op]:
    """Put the stack back; the arguments that carried it do not keep its values alive.

    The exception of an ``except`` block is raised and caught on the spot, which makes it the one being handled.
    """
    ops: list[Op] = []
    for index, kind in enumerate(slots):
        if kind is Slot.NULL:
            ops.append(Op("PUSH_NULL"))
        elif kind is Slot.UNUSED:
            ops.append(Op("BUILD_TUPLE", 0))
        elif kind.is_passed:
            slot = layout.slot(STACK_ARGUMENT.format(index))
            ops += [Op("LOAD_FAST", slot), Op("DELETE_FAST", slot)]
        if kind is Slot.HANDLED:
            # RERAISE changes neither traceback nor context.
            raising, caught = Op("RERAISE", 0), Op("PUSH_EXC_INFO")
            ops += [raising, caught]
            protected.append(Protected(raising, caught, caught, index, lasti=False))
            if Slot.CAUGHT not in slots[index + 1 : index + 2]:
                ops.append(Op("POP_TOP"))
    return ops


def _raise(body: Body, start: list[Op], layout: Layout, entry: Protected | None, after: Op) -> None:
    """Raise the exception under the handler of the protected range ``entry``."""
    if entry is None:
        raise CannotResumeError("nothing handles the exception here")
    slot = layout.slot(EXCEPTION_ARGUMENT)
    raising = Op("RAISE_VARARGS", 1)
    start += [Op("LOAD_FAST", slot), Op("DELETE_FAST", slot), raising]
    body.protected.append(Protected(raising, after, entry.handler, entry.depth, entry.lasti))


def bound_order(user: CodeType, bound: frozenset[str]) -> tuple[str, ...]:
    """Bound plain variables in the order of the user's frame (its first argument stays first)."""
    cells = {*user.co_cellvars, *user.co_freevars}
    return tuple(name for name in user.co_varnames if name in bound and name not in cells)
