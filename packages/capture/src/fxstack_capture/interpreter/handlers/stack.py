"""Shuffling of the value stack, and constants."""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING, Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.interpreter.values import NULL

if TYPE_CHECKING:
    from fxstack_capture.interpreter.frame import Frame


def nop(_frame: Frame, _operand: Any) -> None:
    pass


def pop_top(frame: Frame, _operand: Any) -> None:
    value = frame.stack[-1]
    if type(value) is GeneratorType:
        dropped(value)
    frame.stack.pop()


def dropped(generator: GeneratorType[Any, Any, Any]) -> None:
    """A generator from outside, which the program may hold nowhere else: its ``finally`` blocks run now.

    The variables of what was compiled so far would hold it until the frame ends.
    """
    if generator.gi_suspended and generator.gi_code.co_exceptiontable:
        raise graph_break("side-effect-call", "generator.close")


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
