"""Unary, binary, comparison and subscript operators. Operators of plain numbers and strings are computed
directly, without ``calls``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.callers import calls_program
from fxstack_capture.interpreter.checks import truth_of_check
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.objects.kinds import append_only_lists

SCALARS = frozenset({int, float, str, bool})
"""Types whose operators run no code of the program and depend only on their operands, if both have such a
type.
"""


@calls_program
def binary_op(frame: Frame, op: Callable[[Any, Any], Any]) -> None:
    """Replace two operands with ``op(left, right)``. Plain scalars need no traced call."""
    stack = frame.stack
    right = stack.pop()
    left = stack[-1]
    if type(left) in SCALARS and type(right) in SCALARS:
        stack[-1] = op(left, right)
    else:
        stack[-1] = frame.calls.binary(op, left, right)


def compare_to_bool(frame: Frame, op: Callable[[Any, Any], Any]) -> None:
    """Compare two operands and convert the result to bool (from Python 3.13 on). Only a jump uses the result."""
    binary_op(frame, op)
    to_bool(frame, None)


def is_op(frame: Frame, invert: int) -> None:
    """Push ``left is right``. If both objects are from outside and differ, add a guard that they stay
    different.
    """
    stack = frame.stack
    right = stack.pop()
    left = stack[-1]
    if left is not right and type(left) is type(right):
        frame.objects.distinctions.note_compared(left, right)
    stack[-1] = (left is right) is not bool(invert)


def contains_op(frame: Frame, invert: int) -> None:
    """Replace the container and the item with ``item in container``. If ``invert`` is set, negate the result."""
    stack = frame.stack
    container = stack.pop()
    contained = frame.calls.binary(operator.contains, container, stack[-1])
    stack[-1] = (not contained) if invert else contained


def unary_op(frame: Frame, op: Callable[[Any], Any]) -> None:
    """Replace the operand on the stack with ``op(operand)``."""
    stack = frame.stack
    stack[-1] = frame.calls.unary(op, stack[-1])


def unary_not(frame: Frame, _operand: object) -> None:
    """Replace a condition with its negation. A tensor condition may break the graph (``truth_of_check``)."""
    stack = frame.stack
    stack[-1] = not truth_of_check(frame, stack[-1], frame.pc)


def to_bool(frame: Frame, _operand: object) -> None:
    """Replace a condition with its truth value (from Python 3.13 on). The next step jumps on it."""
    stack = frame.stack
    if type(stack[-1]) is not bool:
        stack[-1] = truth_of_check(frame, stack[-1], frame.pc + 1)


def binary_subscr(frame: Frame, _operand: object) -> None:
    """Replace the container and the key with the item. For a lazy list, read and guard only the item at the
    index.
    """
    stack = frame.stack
    key = stack.pop()
    if type(stack[-1]) is list and id(stack[-1]) in frame.objects.append_only:
        item = append_only_lists.item(frame.objects, stack[-1], key)
        if item is not NULL:
            stack[-1] = item
            return
    method = frame.calls.special_method(stack[-1], "__getitem__")
    if method is None:
        stack[-1] = frame.calls.binary(operator.getitem, stack[-1], key)
    else:
        stack.append(frame.calls.call_linked(method, (stack.pop(), key), {}))


def binary_slice(frame: Frame, _operand: object) -> None:
    """Replace the container and the bounds with ``container[start:stop]`` (from Python 3.12 on)."""
    stack = frame.stack
    container, start, stop = stack[-3:]
    stack[-3:] = (frame.calls.binary(operator.getitem, container, slice(start, stop)),)


def store_subscr(frame: Frame, _operand: object) -> None:
    """Run ``container[key] = value``. A ``__setitem__`` of the program runs as a resumable call."""
    stack = frame.stack
    value, container, key = stack[-3:]
    del stack[-3:]
    method = frame.calls.special_method(container, "__setitem__")
    if method is None:
        frame.calls.call(operator.setitem, (container, key, value), {})
    else:
        frame.calls.call_linked(method, (container, key, value), {})


def store_slice(frame: Frame, _operand: object) -> None:
    """Run ``container[start:stop] = value`` (from Python 3.12 on)."""
    stack = frame.stack
    value, container, start, stop = stack[-4:]
    del stack[-4:]
    frame.calls.call(operator.setitem, (container, slice(start, stop), value), {})


def delete_subscr(frame: Frame, _operand: object) -> None:
    """Run ``del container[key]``."""
    stack = frame.stack
    container, key = stack[-2:]
    del stack[-2:]
    frame.calls.call(operator.delitem, (container, key), {})


def get_len(frame: Frame, _operand: object) -> None:
    """Push the length of the subject of a ``match`` statement. The subject stays on the stack."""
    stack = frame.stack
    stack.append(frame.calls.call(len, (stack[-1],), {}))
