"""Stack manipulation and constants."""

from __future__ import annotations

import gc
import itertools
from types import GeneratorType

from fxstack_capture.breaks import graph_break
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.frame import Frame

_ITERATORS: frozenset[type] = frozenset(
    {GeneratorType, enumerate, zip, map, filter}
    | {v for v in vars(itertools).values() if isinstance(v, type) and hasattr(v, "__next__")}
)
_HOLDERS = _ITERATORS | {tuple}  # a zip keeps its iterators in a tuple


def nop(_frame: Frame, _operand: object) -> None:
    pass


def pop_top(frame: Frame, _operand: object) -> None:
    """Drop the top of the stack. Break the graph if this would close a generator from outside."""
    value = frame.stack[-1]
    # Closing a generator from outside is a side effect.
    if type(value) in _ITERATORS and closes(value):
        raise graph_break("side-effect-call", "generator.close")
    frame.stack.pop()


def closes(value: object) -> bool:
    """Return whether dropping the last reference to ``value`` runs ``finally`` blocks of a generator from
    outside.

    Compiled code drops the reference later than plain Python: variables of the code before the break hold it
    until the frame ends.
    """
    if type(value) is GeneratorType:
        return value.gi_suspended and bool(value.gi_code.co_exceptiontable)
    inside = gc.get_referents(value) if type(value) in _HOLDERS else ()
    return any(closes(part) for part in inside)


def pop_two(frame: Frame, _operand: object) -> None:
    """Drop the two top values (END_FOR of Python 3.12)."""
    del frame.stack[-2:]


def pop_second(frame: Frame, _operand: object) -> None:
    """Drop the value below the top (END_SEND)."""
    del frame.stack[-2]


def push_null(frame: Frame, _operand: object) -> None:
    frame.stack.append(NULL)


def copy(frame: Frame, depth: int) -> None:
    """Push a copy of the value ``depth`` slots from the top. The top itself is 1."""
    stack = frame.stack
    stack.append(stack[-depth])


def swap(frame: Frame, depth: int) -> None:
    """Exchange the top with the value ``depth`` slots from the top. The top itself is 1."""
    stack = frame.stack
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


def load_const(frame: Frame, value: object) -> None:
    frame.stack.append(value)
