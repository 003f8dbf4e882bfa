"""Functions that continue a frame from the middle: the user's own operations behind another prologue.

A resume function takes the values on the stack and the bound variables as arguments, puts the former back on
the stack and jumps to where the frame goes on. Cells arrive in its closure. It is always made from the code
that the user wrote: a break inside of a resume function continues in another one of the same original.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxstack_capture.emit.assemble import Body, Op, Protected, read
from fxstack_capture.emit.errors import CannotResumeError
from fxstack_capture.emit.flow import handler_of
from fxstack_capture.emit.layout import Layout, assemble, move, prologue, slot_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

STACK_ARGUMENT = ".stack{}"
EXCEPTION_ARGUMENT = ".exception"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a frame goes on: ``offset`` in the user's code, which values of the stack are NULL, bound variables.

    ``raising``: an exception is raised there first, with the stack cut to what its handler keeps.
    """

    offset: int
    nulls: tuple[bool, ...]
    bound: tuple[str, ...]
    raising: bool = False


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

    def at(self, user: CodeType, place: Place) -> Resumption:
        key = id(user), place
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = resumption(user, place)
            self._by_code[id(made.code)] = made
            if place.raising:
                self.unsafe_to_trace(made.code)
        return made

    def of(self, code: CodeType) -> Resumption | None:
        """The resumption that ``code`` belongs to; None for code that the user wrote."""
        return self._by_code.get(id(code))

    def clear(self) -> None:
        self._made.clear()
        self._by_code.clear()


def free_variables(user: CodeType) -> tuple[str, ...]:
    """Cells of the user's frame, own and from outside: free variables of what continues it."""
    return tuple(sorted({*user.co_cellvars, *user.co_freevars}))


def resumption(user: CodeType, place: Place) -> Resumption:
    """Make the code that continues ``user`` at ``place``."""
    body = read(user)
    names = slot_names(user)
    free = free_variables(user)
    on_stack = tuple(STACK_ARGUMENT.format(i) for i, null in enumerate(place.nulls) if not null)
    extra = (EXCEPTION_ARGUMENT,) if place.raising else ()
    arguments = (*on_stack, *extra, *place.bound)
    rest = tuple(n for n in user.co_varnames if n not in place.bound and n not in free)
    layout = Layout(arguments, rest, free)
    move(body, names, layout)
    target = body.ops[body.at(place.offset)]
    first = next(i for i, op in enumerate(body.ops) if op.name == "RESUME") + 1
    start = prologue(layout)
    start += _push(place, layout)
    if place.raising:
        _raise(body, start, layout, target)
    elif target is not body.ops[first]:
        start.append(Op("JUMP_FORWARD", 0, target))
    for op in start:
        op.position = target.position
    body.ops[:first] = start
    stack = user.co_stacksize + len(place.nulls) + 2
    code, made = assemble(user, body, layout, stack)
    return Resumption(code, user, made.origin, min(made.origin, default=0))


def _push(place: Place, layout: Layout) -> list[Op]:
    """Put the stack back; the arguments that carried it do not keep its values alive."""
    ops: list[Op] = []
    for index, null in enumerate(place.nulls):
        if null:
            ops.append(Op("PUSH_NULL"))
        else:
            slot = layout.slot(STACK_ARGUMENT.format(index))
            ops += [Op("LOAD_FAST", slot), Op("DELETE_FAST", slot)]
    return ops


def _raise(body: Body, start: list[Op], layout: Layout, target: Op) -> None:
    """Raise the exception as if ``target`` had raised it: under the same handler."""
    slot = layout.slot(EXCEPTION_ARGUMENT)
    raising = Op("RAISE_VARARGS", 1)
    start += [Op("LOAD_FAST", slot), Op("DELETE_FAST", slot), raising]
    number = handler_of(body, target)
    if number is None:
        raise CannotResumeError("nothing handles the exception here")
    entry = body.protected[number]
    after = body.ops[next(i for i, op in enumerate(body.ops) if op.name == "RESUME") + 1]
    body.protected.insert(0, Protected(raising, after, entry.handler, entry.depth, entry.lasti))


def bound_order(user: CodeType, bound: frozenset[str]) -> tuple[str, ...]:
    """Bound plain variables in the order of the user's frame (its first argument stays first)."""
    cells = {*user.co_cellvars, *user.co_freevars}
    return tuple(name for name in user.co_varnames if name in bound and name not in cells)
