"""Deferred locals: values that are stored in variables before any instruction reads them.

Deferred locals exist in the root frame, in frames of resume functions, and in frames that get them as
arguments. ``wrapping`` creates the steps of such a frame.

A guard on a value belongs to its first use. A deferred local therefore stays deferred when it is stored in
another variable or passed to a function that the trace interprets (``formatting.is_passed_on``). A variable
that the program never reads has no guards.

Two kinds of stack values can stay ``DeferredLocal`` or ``DeferredTuple``: the item of a loop (``for i, (name,
x) in ...``), and the result of an operation that broke the graph (``a, b = f(x)``). They do so if the
following steps only unpack and store the value (``_defer_stores``).

A string that the program only prints has no guard on its value. The replacement code reads the string after
the graph has run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import CellType
from typing import Any

import torch

from fxstack_capture.guards.records import LengthIs, TypeIs
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.handlers import containers, flow
from fxstack_capture.interpreter.handlers.deferred import formatting
from fxstack_capture.interpreter.handlers.variables import local_slots
from fxstack_capture.interpreter.program import Instead, Step
from fxstack_capture.objects.kinds.consumed_iterators import entered
from fxstack_capture.objects.printed_texts import Piece, Text
from fxstack_capture.sources import Item
from fxstack_capture.trace.records import DeferredLocal, DeferredTuple


def for_iter(frame: Frame, target: int) -> int | None:
    """Push the next item, deferred, if the loop iterates over a partially consumed iterator from outside.

    For any other iterator, the plain handler runs.
    """
    stack = frame.stack
    consumed = frame.objects.iterators.get(id(stack[-1]))
    if consumed is None or id(stack[-1]) not in frame.objects.opaque:
        return flow.for_iter(frame, target)
    try:
        stack.append(consumed.next())
    except StopIteration as end:
        frame.interp.dealt_with(end)
        stack.pop()
        return target
    return None


def load_fast(frame: Frame, index: int) -> None:
    """Push a stack value that a resume function got, without wrapping it. The next steps only unpack and
    store it.
    """
    local_slots.load_fast(frame, index)


def load_inner(frame: Frame, index: int) -> None:
    """Push an argument for the resume function of an inlined call (arguments ``.inner0`` and so on).

    Only a cell is wrapped here. The called resume function wraps any other value at its first use.
    """
    value = frame.fast[index]
    if type(value) is DeferredLocal and type(value.value) is CellType:
        local_slots.root_load_fast(frame, index)
    else:
        local_slots.load_fast(frame, index)


def enter_fast(frame: Frame, index: int, above: int = 0) -> None:
    """Push a variable.

    A string that is only printed becomes a ``Text``. A value that is only passed on stays deferred. ``above``
    is the number of values that the same step pushes after this variable.
    """
    value = frame.fast[index]
    if type(value) is DeferredLocal and isinstance(value.value, _PLAIN):
        height = len(frame.stack)
        if type(value.value) is str and formatting.is_printed(frame, height, above):
            # The compiled code prints the string of each call, so a guard on the type is enough.
            frame.interp.trace.guard(value.source, TypeIs(str))
            frame.stack.append(Text((Piece(value),)))
            return
        if formatting.is_passed_on(frame, height, above):
            frame.stack.append(value)
            return
    local_slots.root_load_fast(frame, index)


def enter_fast_fast(frame: Frame, indices: tuple[int, int]) -> None:
    """Push two variables, each as ``enter_fast`` does (from Python 3.13 on)."""
    enter_fast(frame, indices[0], above=1)
    enter_fast(frame, indices[1])


_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, range, slice, tuple, list, dict, set, frozenset),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Tensor),
)
"""Classes of values that may stay deferred. A guard on such a value would depend on the value."""


def unpack_sequence(frame: Frame, count: int) -> None:
    """Replace a deferred tuple by its items. The items stay deferred, so unused items get no guards."""
    value = frame.stack[-1]
    if type(value) is DeferredTuple:
        if len(value.parts) == count:
            frame.stack[-1:] = value.parts[::-1]
            return
        frame.stack[-1] = entered(frame.objects, value)
    elif type(value) is DeferredLocal:
        items: Any = value.value
        if type(items) is tuple and len(items) == count:
            source = value.source
            frame.interp.trace.guard(source, TypeIs(tuple))
            frame.interp.trace.guard(source, LengthIs(count))
            frame.stack[-1:] = [DeferredLocal(p, Item(source, i)) for i, p in enumerate(items)][::-1]
            return
        frame.stack[-1] = frame.objects.enter(items, value.source)
    containers.unpack_sequence(frame, count)


def store_fast(frame: Frame, index: int) -> None:
    """Store a value, which may be deferred. A ``DeferredTuple`` is first replaced by a tuple of wrapped
    items.
    """
    value = frame.stack.pop()
    frame.fast[index] = entered(frame.objects, value) if type(value) is DeferredTuple else value


def _end_of_targets(steps: Sequence[Step], index: int) -> int | None:
    """Return the index of the first step after those that unpack and store one value. These begin at
    ``index``.

    Return None if another step uses the value.
    """
    if index >= len(steps):
        return None
    handler, operand = steps[index]
    if handler in (local_slots.store_fast, store_fast):
        return index + 1
    if handler not in (containers.unpack_sequence, unpack_sequence):
        return None
    after: int | None = index + 1
    for _ in range(operand):
        after = None if after is None else _end_of_targets(steps, after)
    return after


def _defer_stores(steps: Sequence[Step]) -> list[Step]:
    """Return the steps, with new handlers for values that the following steps only unpack and store.

    The values are items of loops, and stack values of resume functions.
    """
    steps = list(steps)
    for index, (handler, operand) in enumerate(steps):
        if handler is flow.for_iter:
            _store_deferred(steps, index, index + 1, (for_iter, operand))
        elif handler is local_slots.load_fast and steps[index + 1] == (local_slots.delete_fast, operand):
            # A resume function loads its stack values and then jumps to the instruction that uses them.
            jump, target = steps[index + 2]
            if jump is flow.jump:
                _store_deferred(steps, index, target, (load_fast, operand))
    return steps


def _store_deferred(steps: list[Step], index: int, targets: int, replacement: Step) -> None:
    """Put ``replacement`` at ``index``. The steps from ``targets`` on then unpack and store deferred values.

    If another step uses the value before it is stored, change nothing.
    """
    after = _end_of_targets(steps, targets)
    if after is None:
        return
    steps[index] = replacement
    for target in range(targets, after):
        handler, operand = steps[target]
        steps[target] = _INSTEAD.get(handler, handler), operand


_INSTEAD: dict[Any, Any] = {containers.unpack_sequence: unpack_sequence, local_slots.store_fast: store_fast}

ENTER_FAST = Instead.of(local_slots.load_fast, enter_fast)
"""The handler that loads a variable whose value may be a deferred local."""

_ENTERING: dict[Any, Any] = {
    local_slots.load_fast: ENTER_FAST,
    local_slots.load_fast_load_fast: Instead.of(local_slots.load_fast_load_fast, enter_fast_fast),
    local_slots.load_fast_and_clear: local_slots.root_load_fast_and_clear,
    local_slots.store_fast_load_fast: local_slots.root_store_fast_load_fast,
    local_slots.make_cell: local_slots.root_make_cell,
}
"""Maps handlers that load variables to variants that accept deferred locals."""


_LOAD_INNER = Instead.of(local_slots.load_fast, load_inner)

CONTINUING = re.compile(r"\.(stack|inner)\d").match
"""Matches names of resume function arguments, such as ``.stack0`` (``emit.resume``)."""


def wrapping(steps: Sequence[Step], names: Sequence[str]) -> tuple[Step, ...]:
    """Return ``steps`` with variants that accept deferred locals in variables.

    ``steps_of`` calls this for the root frame and for frames with deferred arguments. ``names`` are the names
    of the variables by slot.
    """
    wrapped: list[Step] = []
    for handler, operand in _defer_stores(steps):
        inner = handler is local_slots.load_fast and names[operand].startswith(".inner")
        wrapped.append((_LOAD_INNER if inner else _ENTERING.get(handler, handler), operand))
    return tuple(wrapped)
