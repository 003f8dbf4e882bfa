"""Jumps, loops, returns, and instructions that break the graph."""

from __future__ import annotations

from typing import NoReturn

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.interpreter.checks import truth_of_check
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.generators import TraceGenerator
from fxstack_capture.interpreter.program import LEAVE

_PLAIN_ITERATORS = frozenset(map(type, (iter([]), iter(()), iter(range(0)), iter(""))))
"""Types of iterators whose ``next`` runs no code of the program and cannot fail."""


def jump(_frame: Frame, target: int) -> int:
    """Continue at ``target``."""
    return target


def pop_jump_if_true(frame: Frame, target: int) -> int | None:
    """Pop a condition and jump if it is true. A tensor condition may break the graph (``truth_of_check``)."""
    value = frame.stack.pop()
    if value is True or (value is not False and truth_of_check(frame, value, frame.pc)):
        return target
    return None


def pop_jump_if_false(frame: Frame, target: int) -> int | None:
    """Pop a condition and jump if it is false. A tensor condition may break the graph (``truth_of_check``)."""
    value = frame.stack.pop()
    if value is False or (value is not True and not truth_of_check(frame, value, frame.pc)):
        return target
    return None


def pop_jump_if_none(frame: Frame, target: int) -> int | None:
    return target if frame.stack.pop() is None else None


def pop_jump_if_not_none(frame: Frame, target: int) -> int | None:
    return target if frame.stack.pop() is not None else None


def jump_if_true_or_pop(frame: Frame, target: int) -> int | None:
    """Keep the condition and jump if it is true. Otherwise pop it (``or``)."""
    if truth_of_check(frame, frame.stack[-1], frame.pc):
        return target
    frame.stack.pop()
    return None


def jump_if_false_or_pop(frame: Frame, target: int) -> int | None:
    """Keep the condition and jump if it is false. Otherwise pop it (``and``)."""
    if not truth_of_check(frame, frame.stack[-1], frame.pc):
        return target
    frame.stack.pop()
    return None


def get_iter(frame: Frame, _operand: object) -> None:
    """Replace the object on the stack with its iterator."""
    stack = frame.stack
    stack[-1] = frame.calls.iterate(stack[-1])


@calls_program
def for_iter(frame: Frame, target: int) -> int | None:
    """Push the next item of the iterator on top of the stack. At its end, pop the iterator and jump to
    ``target``.

    An iterator that cannot run code of the program is advanced directly.
    """
    stack = frame.stack
    iterator = stack[-1]
    try:
        if type(iterator) in _PLAIN_ITERATORS and id(iterator) not in frame.objects.opaque:
            stack.append(next(iterator))
        elif type(iterator) is TraceGenerator:
            stack.append(iterator.resume(None))
        else:
            stack.append(frame.calls.next(iterator))
    except StopIteration as end:
        frame.interp.dealt_with(end)
        stack.pop()
        return target
    return None


def return_value(_frame: Frame, _operand: object) -> int:
    """Leave the frame. The result is on top of the stack."""
    return LEAVE


def return_const(frame: Frame, value: object) -> int:
    """Push a constant and leave the frame."""
    frame.stack.append(value)
    return LEAVE


def unsupported(_frame: Frame, construct: str) -> NoReturn:
    """Break the graph at a construct that the trace does not interpret.

    ``construct`` is its name in the message, for example "async for".
    """
    raise graph_break("unsupported-bytecode", construct)
