"""The frames around a graph break, computed from the user's code before any code is emitted."""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from weakref import getweakrefcount

import torch

from fxstack_capture.bytecode.assemble import Op, Protected
from fxstack_capture.bytecode.flow import Flow, handler_of
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.bytecode.units import slot_names
from fxstack_capture.emit.endings.steps import Step, step_at
from fxstack_capture.emit.errors import CannotResumeError
from fxstack_capture.emit.resume import Resumptions, Slot
from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_capture.objects.instances import has_visible_finalizer
from fxstack_capture.trace.records import DeferredLocal, Stopped, StoppedFrame
from fxstack_capture.trace.state import Trace
from fxstack_interchange.bytecode import Kind


@dataclass(frozen=True, slots=True)
class Level:
    """One stopped frame of the program, in terms of the code that the user wrote.

    The level of the root frame is the first. If the frame ran a resume function, ``user`` is the original
    code that the resume function continues.
    """

    state: StoppedFrame
    """The stopped frame: its stack, variables and cells."""
    user: CodeType
    flow: Flow
    """The instructions of ``user`` and their live variables."""
    op: Op
    """The first part (a prefix or the instruction itself) of ``step``, where the frame stopped."""
    step: Step
    """The whole operation at which the frame stopped, with its exits."""
    slots: tuple[Slot, ...]
    """The kind of each stack value."""
    taken: int
    """The number of stack values below the operands of the instruction.

    A call instruction of a caller has already popped its operands.
    """
    has_result: bool
    """Whether the result of a caller's instruction is already on the stack.

    This is true for a call of a class: the new instance is the result, and the return value of ``__init__``
    is dropped.
    """
    watched: frozenset[str]
    """The variables whose objects have weak references or finalizers.

    Such an object lives until the frame ends, or until the program deletes the variable.
    """

    @property
    def handler(self) -> Protected | None:
        """The innermost protected range that contains the instruction, or None outside of ``try`` and ``with``."""
        index = handler_of(self.flow.body, self.op)
        return None if index is None else self.flow.body.protected[index]

    @property
    def results(self) -> tuple[bool, ...]:
        """Describes the values that a caller's instruction leaves on the stack: True for a NULL, False for
        the value of the call.
        """
        if self._repeats_jump:
            return (False,)
        results = self.step.exits[0].results
        return results[-1:] if Kind.KEEPS_BELOW in self.step.ops[-1].kind else results

    @property
    def following(self) -> Op:
        """The instruction where a caller continues after the call, with the result on the stack."""
        return self.op if self._repeats_jump else self.step.exits[0].next

    @property
    def end(self) -> Op | None:
        """The instruction where a caller continues if the call has ended a ``for`` loop. None if the caller's
        instruction is not that of a ``for`` loop.
        """
        return self.step.exits[1].next if Kind.ITERATES in self.step.ops[-1].kind else None

    @property
    def _repeats_jump(self) -> bool:
        """Whether the caller's instruction is a conditional jump that called a function as truth test.

        The call gives a bool. The resume function then runs the jump again, on this bool.
        """
        return len(self.step.exits) > 1 and self.end is None

    @property
    def hidden(self) -> bool:
        """Whether the level is a polyfill, which represents C code. C code has no frame."""
        return self.user.co_filename == polyfill.__file__

    def live_at(self, op: Op) -> set[str]:
        """Return the names of the variables that the resume function needs at ``op``: live and watched
        variables.
        """
        names = slot_names(self.user)
        return {*(names[slot] for slot in self.flow.live_before(op)), *self.watched}

    def live_after(self) -> set[str]:
        """Return the names of the variables that are needed after the instruction, on any exit or in its
        handler.
        """
        targets = [exit.next for exit in self.step.exits]
        if self.handler is not None:
            targets.append(self.handler.handler)
        return set().union(*(self.live_at(target) for target in targets))


def levels_of(trace: Trace, stopped: Stopped, resumptions: Resumptions) -> tuple[Level, ...]:
    """Return the levels of all stopped frames, the root first.

    ``draft_stop`` calls this first. Raises CannotResumeError if a frame cannot continue.
    """
    *callers, last = stopped.frames
    return (
        *(_caller(frame, resumptions, _watched_names(trace, frame)) for frame in callers),
        _last(last, resumptions, _watched_names(trace, last)),
    )


def original_of(trace: Trace, value: object) -> object:
    """Return the original object of ``value``, the value of a local variable. ``value`` may be a
    ``DeferredLocal``.
    """
    return value.value if type(value) is DeferredLocal else trace.objects.original_of(value)


def _watched_names(trace: Trace, frame: StoppedFrame) -> frozenset[str]:
    """Return the names of the variables whose objects must live until the frame ends (see ``Level.watched``)."""
    return frozenset(
        name
        for name, value in frame.local_values.items()
        if _is_watched(value) or _is_watched(original_of(trace, value))
    )


def _is_watched(value: object) -> bool:
    """Return whether the program can observe the death of the object. It can if the object has a weak
    reference or a finalizer.
    """
    # A finalizer or the callback of a weak reference runs when the last reference is dropped. A resume function
    # without the variable would drop the object at the break, earlier than plain Python does.
    watched = getweakrefcount(value) or has_visible_finalizer(type(value))
    return bool(watched) and not issubclass(type(value), _ALWAYS_WATCHED)


_ALWAYS_WATCHED = (torch.Tensor, type, FunctionType, CodeType, ModuleType)
"""Types for whose instances torch and Python themselves make weak references."""


def _caller(frame: StoppedFrame, resumptions: Resumptions, watched: frozenset[str]) -> Level:
    """Return the level of a frame that was waiting for a call when the graph broke."""
    resumed = resumptions.of(frame.code)
    has_result = frame.made
    if resumed is None:
        user, offset = frame.code, frame.offset
    elif resumed.calling is not None and frame.offset == resumed.calling[0]:
        # The frame waits in the prologue of its resume function, which calls the callee again. The user wrote no
        # such call, so the level describes the call instruction of the user's code.
        assert resumed.point.callee is not None
        user, offset = resumed.user, resumed.calling[1]
        has_result = resumed.point.callee.has_result
    else:
        user, offset = resumed.user, _origin(resumed.origin, frame.offset)
    flow = resumptions.flow(user)
    index = flow.body.at(offset)
    step = step_at(flow.body, index)
    op, below = flow.body.ops[index], len(frame.stack)
    return Level(frame, user, flow, op, step, slots_of(frame), below, has_result, watched)


def _last(frame: StoppedFrame, resumptions: Resumptions, watched: frozenset[str]) -> Level:
    """Return the level of the frame whose instruction breaks the graph."""
    resumed = resumptions.of(frame.code)
    user, offset = frame.code, frame.offset
    if resumed is not None:
        user, offset = resumed.user, _origin(resumed.origin, offset)
    flow = resumptions.flow(user)
    index = flow.body.at(offset)
    step = step_at(flow.body, index)
    # The stub of the operation gets the operands as arguments, so only the values below them remain on the stack.
    below = len(frame.stack) - step.takes
    op, slots = flow.body.ops[index], slots_of(frame)
    return Level(frame, user, flow, op, step, slots, below, has_result=False, watched=watched)


def _origin(origin: dict[int, int], offset: int) -> int:
    """Return the offset in the user's code that corresponds to ``offset`` in a resume function.

    ``origin`` is the map ``Resumption.origin``. Raises CannotResumeError if ``offset`` is in the prologue of
    the resume function, because the prologue corresponds to no offset of the user's code.
    """
    if offset not in origin:
        raise CannotResumeError("the frame has run no instruction since the last graph break")
    return origin[offset]


def slots_of(frame: StoppedFrame) -> tuple[Slot, ...]:
    """Return the kind of each stack value. Raises CannotResumeError if the handled exception is not found.

    When an ``except`` block begins, it pushes the exception that was handled before (the kept exception). The
    outermost block pushes the exception that the callers handle, or None. Below a kept exception the block
    has only iterators of loops, exits of contexts and offsets. Therefore the first value that can be a kept
    exception is one.
    """
    slots = [Slot.NULL if value is NULL else Slot.VALUE for value in frame.stack]
    at = -1
    for level in range(frame.handling):
        at += 1
        while at < len(slots) and not _is_kept(frame.stack[at], frame, outermost=level == 0):
            at += 1
        if at == len(slots):
            raise CannotResumeError("the handled exception is not at its expected place on the stack")
        slots[at] = Slot.HANDLED
    if frame.handling and at + 1 < len(slots) and frame.stack[at + 1] is frame.handled:
        slots[at + 1] = Slot.CAUGHT
    return tuple(slots)


def _is_kept(value: object, frame: StoppedFrame, *, outermost: bool) -> bool:
    """Return whether a stack value is the exception that an ``except`` block restores at its end
    (``Slot.HANDLED``).

    ``outermost``: the block is the outermost of the frame.
    """
    return value is frame.handled_outside if outermost else isinstance(value, BaseException)


def handled_exceptions(frame: StoppedFrame, slots: tuple[Slot, ...]) -> list[BaseException | None]:
    """Return the exceptions that a frame handles, outermost first.

    ``slots`` are the kinds of the frame's stack values. A ``HANDLED`` slot holds the exception that was handled
    before its ``except`` block began (``slots_of``): the exception of the next outer block, or for the outermost
    block the exception of the callers, which is left out. The innermost block handles ``frame.handled``.
    """
    kept = [value for value, slot in zip(frame.stack, slots, strict=True) if slot is Slot.HANDLED]
    return [*kept[1:], frame.handled]
