"""Shuffling of the value stack, and constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxstack_capture.interpreter.values import NULL

if TYPE_CHECKING:
    from fxstack_capture.interpreter.frame import Frame


def nop(_frame: Frame, _operand: Any) -> None:
    pass


def pop_top(frame: Frame, _operand: Any) -> None:
    frame.stack.pop()


def pop_two(frame: Frame, _operand: Any) -> None:
    del frame.stack[-2:]


def pop_second(frame: Frame, _operand: Any) -> None:
    del frame.stack[-2]


def push_null(frame: Frame, _operand: Any) -> None:
    frame.stack.append(NULL)


def copy(frame: Frame, depth: int) -> None:
    stack = frame.stack
    stack.append(stack[-depth])


def swap(frame: Frame, depth: int) -> None:
    stack = frame.stack
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


def load_const(frame: Frame, value: Any) -> None:
    frame.stack.append(value)
