"""Functions that continue a frame from the middle: the user's own operations behind another prologue.

A resume function takes the values on the stack and the bound variables as arguments, puts the former back on
the stack and jumps to where the frame goes on. Cells arrive in its closure. It is always made from the code
that the user wrote: a break inside of a resume function continues in another one of the same original.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from fxstack_capture.emit.assemble import Body, Op, Protected, read
from fxstack_capture.emit.errors import CannotResumeError
from fxstack_capture.emit.flow import Flow, flow_of, handler_of
from fxstack_capture.emit.layout import Layout, assemble, move, prologue, slot_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

STACK_ARGUMENT = ".stack{}"
EXCEPTION_ARGUMENT = ".exception"
FIRST_ARGUMENT = ".first"
"""The content of a cell that was the user's first argument."""


class Slot(Enum):
    """What stands in a place of the stack."""

    VALUE = "value"
    NULL = "null"
    HANDLED = "handled"
    """What an ``except`` block keeps to restore the exception state; the exception it handles is passed."""
    CAUGHT = "caught"
    """That exception itself, above HANDLED, while it is matched."""

    @property
    def is_passed(self) -> bool:
        """Whether an argument carries it."""
        return self in (Slot.VALUE, Slot.HANDLED)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a frame goes on: ``offset`` in the user's code, what is on the stack, which variables are bound.

    ``raising``: an exception is raised there first, with the stack cut to what its handler keeps. ``first``
    names the argument that ``super()`` takes for the object; it is passed before all others.
    """

    offset: int
    stack: tuple[Slot, ...]
    bound: tuple[str, ...]
    raising: bool = False
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resumption:
    """A resume function's code. ``origin`` maps its offsets to the user's; below ``start`` is the prologue."""

    code: CodeType
    user: CodeType
    origin: dict[int, int]
    start: int


class Resumptions:
    """Resume functions by the user's code object and place; they live as long as their owner."""

    def __init__(self, never_trace: Callable[[CodeType], None]) -> None:
        """``never_trace`` is told of code that must run as it is: stubs, and what raises an exception first."""
        self.unsafe_to_trace = never_trace
        self._made: dict[tuple[int, Place], Resumption] = {}
        self._by_code: dict[int, Resumption] = {}
        self._flows: dict[int, tuple[CodeType, Flow]] = {}

    def at(self, user: CodeType, place: Place) -> Resumption:
        key = id(user), place
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = resumption(user, place)
            self._by_code[id(made.code)] = made
            if place.raising:
                self.unsafe_to_trace(made.code)
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

    def clear(self) -> None:
        self._made.clear()
        self._by_code.clear()
        self._flows.clear()


def free_variables(user: CodeType) -> tuple[str, ...]:
    """Cells of the user's frame, own and from outside: free variables of what continues it."""
    return tuple(sorted({*user.co_cellvars, *user.co_freevars}))


def resumption(user: CodeType, place: Place) -> Resumption:
    """Make the code that continues ``user`` at ``place``."""
    body = read(user)
    names = slot_names(user)
    free = free_variables(user)
    on_stack = stack_arguments(place.stack)
    extra = (EXCEPTION_ARGUMENT,) if place.raising else ()
    arguments = (*place.first, *on_stack, *extra, *(n for n in place.bound if n not in place.first))
    rest = tuple(n for n in user.co_varnames if n not in place.bound and n not in free)
    layout = Layout(arguments, rest, free)
    move(body, names, layout)
    target = body.ops[body.at(place.offset)]
    # The old RESUME stays, unused: protected ranges may begin there.
    first = next(i for i, op in enumerate(body.ops) if op.name == "RESUME")
    handler = handler_of(body, target)
    entry = None if handler is None else body.protected[handler]
    start = prologue(layout)
    start += push(place.stack, layout, body.protected)
    if place.raising:
        _raise(body, start, layout, entry, body.ops[first])
    else:
        start.append(Op("JUMP_FORWARD", 0, target))
    for op in start:
        op.position = target.position
    body.ops[:first] = start
    stack = user.co_stacksize + len(place.stack) + 4
    code, made = assemble(user, body, layout, stack)
    return Resumption(code, user, made.origin, min(made.origin, default=0))


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
        elif kind.is_passed:
            slot = layout.slot(STACK_ARGUMENT.format(index))
            ops += [Op("LOAD_FAST", slot), Op("DELETE_FAST", slot)]
        if kind is Slot.HANDLED:
            raising, caught = Op("RAISE_VARARGS", 1), Op("PUSH_EXC_INFO")
            ops += [raising, caught]
            protected.insert(0, Protected(raising, caught, caught, index, lasti=False))
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
    body.protected.insert(0, Protected(raising, after, entry.handler, entry.depth, entry.lasti))


def first_argument(user: CodeType) -> str | None:
    """The variable that ``super()`` without arguments would read in ``user``."""
    return user.co_varnames[0] if "super" in user.co_names and user.co_argcount else None


def bound_order(user: CodeType, bound: frozenset[str]) -> tuple[str, ...]:
    """Bound plain variables in the order of the user's frame (its first argument stays first)."""
    cells = {*user.co_cellvars, *user.co_freevars}
    return tuple(name for name in user.co_varnames if name in bound and name not in cells)
