"""Shuffling of the value stack, and constants."""

from __future__ import annotations

import gc
import itertools
from types import GeneratorType

from fxstack_capture.breaks import graph_break
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.values import NULL

_ITERATORS: frozenset[type] = frozenset(
    {GeneratorType, enumerate, zip, map, filter}
    | {v for v in vars(itertools).values() if isinstance(v, type) and hasattr(v, "__next__")}
)
_HOLDERS = _ITERATORS | {tuple}  # zip has one


def nop(_frame: Frame, _operand: object) -> None:
    pass


def pop_top(frame: Frame, _operand: object) -> None:
    value = frame.stack[-1]
    if type(value) in _ITERATORS and closes(value):
        raise graph_break("side-effect-call", "generator.close")
    frame.stack.pop()


def closes(value: object) -> bool:
    """Whether ``finally`` blocks of generators from outside run now if the program holds ``value`` nowhere else.

    The variables of what was compiled so far would hold it until the frame ends.
    """
    if type(value) is GeneratorType:
        return value.gi_suspended and bool(value.gi_code.co_exceptiontable)
    inside = gc.get_referents(value) if type(value) in _HOLDERS else ()
    return any(closes(part) for part in inside)


def pop_two(frame: Frame, _operand: object) -> None:
    del frame.stack[-2:]


def pop_second(frame: Frame, _operand: object) -> None:
    del frame.stack[-2]


def push_null(frame: Frame, _operand: object) -> None:
    frame.stack.append(NULL)


def copy(frame: Frame, depth: int) -> None:
    stack = frame.stack
    stack.append(stack[-depth])


def swap(frame: Frame, depth: int) -> None:
    stack = frame.stack
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


def load_const(frame: Frame, value: object) -> None:
    frame.stack.append(value)
