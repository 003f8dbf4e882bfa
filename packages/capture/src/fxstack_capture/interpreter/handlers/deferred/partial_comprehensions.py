"""Partial comprehensions: lists that a comprehension was filling when the graph broke.

The resume function gets such a list as an argument. It pushes the list on the stack, below the iterator of
the loop. Until the loop ends, only the comprehension uses the list, so the list stays a ``DeferredLocal``.
Therefore no guard checks the earlier elements, and every iteration runs the same compiled code
(``objects.kinds.append_only_lists``). The list is wrapped when the loop ends or an exception leaves the loop.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.handlers import containers, flow
from fxstack_capture.interpreter.handlers.deferred import deferred_locals as deferred
from fxstack_capture.interpreter.handlers.variables import local_slots
from fxstack_capture.interpreter.program import Handler, Step
from fxstack_capture.objects.kinds.append_only_lists import in_local
from fxstack_capture.trace.records import DeferredLocal

_ON_STACK = re.compile(r"\.stack\d").match


def filling(steps: Sequence[Step], names: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps of a resume function in which partial comprehensions stay deferred.

    ``steps`` are a result of ``deferred_locals.wrapping``. ``names`` are the names of the variables by slot.
    """
    on_stack = [index for index, name in enumerate(names) if _ON_STACK(name)]
    if not on_stack or all(handler is not containers.list_append for handler, _ in steps):
        return tuple(steps)
    return tuple(_replace_step(handler, operand, on_stack) for handler, operand in steps)


def _replace_step(handler: Handler, operand: object, on_stack: list[int]) -> Step:
    """Return the step that keeps the iterator and the list of a comprehension deferred.

    ``on_stack`` are the slots of the arguments that carry stack values, deepest first.
    """
    if handler is containers.list_append:
        return list_append, operand
    if handler in (flow.for_iter, deferred.for_iter):
        return partial(_for_iter, handler), operand
    if handler is deferred.ENTER_FAST and operand in on_stack:
        above = tuple(on_stack[on_stack.index(operand) + 1 :])
        return partial(_load_fast, above), operand
    return handler, operand


def _load_fast(above: tuple[int, ...], frame: Frame, index: int) -> None:
    """Push the argument in slot ``index``. A list below a partially consumed iterator is pushed without
    wrapping it.

    ``above`` are the slots of the arguments that lie above this argument on the stack.
    """
    value = frame.fast[index]
    is_list = type(value) is DeferredLocal and type(value.value) is list
    if is_list and any(_is_iterator(frame.fast[slot]) for slot in above):
        frame.stack.append(value)
    else:
        local_slots.root_load_fast(frame, index)


def _is_iterator(value: object) -> bool:
    """Return whether a value, or the value of a deferred local, is an iterator."""
    return hasattr(type(value.value if type(value) is DeferredLocal else value), "__next__")


def list_append(frame: Frame, depth: int) -> None:
    """Append to the deferred list of a partial comprehension. Other lists use the plain handler."""
    lazy_list = in_local(frame.objects, frame.stack[-depth - 1])
    if lazy_list is None:
        containers.list_append(frame, depth)
    else:
        lazy_list.append(frame.stack.pop())


def _for_iter(handler: Handler, frame: Frame, target: int) -> int | None:
    """Advance the loop of a comprehension. At the end of the loop, wrap the list, because later code may read
    it.
    """
    after = handler(frame, target)
    if after is not None:
        settle(frame, _is_iterator)
    return after


def settle(frame: Frame, ends: Any = None) -> None:
    """Wrap deferred values on the stack from the top down. Stop at the first value for which ``ends(value)``
    is true.

    If ``ends`` is None, wrap all of them. An exception handler of a resumed frame needs this.
    """
    stack = frame.stack
    for index in range(len(stack) - 1, -1, -1):
        value = stack[index]
        if type(value) is DeferredLocal:
            stack[index] = frame.objects.enter(value.value, value.source)
        elif ends is not None and ends(value):
            return
