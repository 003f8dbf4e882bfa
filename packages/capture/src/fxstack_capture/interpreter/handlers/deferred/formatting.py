"""f-strings, and values that are only printed (``is_printed``) or only used by reorderable functions
(``is_reordered``).

Such a value becomes a ``Text``. It is formatted after the graph has run.
"""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any, Final

import torch

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.handlers import attributes, calling, containers, flow, operators, stack
from fxstack_capture.interpreter.handlers.variables import local_slots, names
from fxstack_capture.interpreter.program import Step
from fxstack_capture.objects.printed_texts import NUMBERS, Piece, Text
from fxstack_capture.trace.state import Trace

_CONVERSIONS = (None, str, repr, ascii)
_LETTERS = ("", "s", "r", "a")


def _piece(frame: Frame, value: object) -> Piece | None:
    """Return the ``Piece`` of a graph number, tensor or text that is only printed. Return None for any other
    value.
    """
    if type(value) is Text:
        return value.piece
    height = len(frame.stack) - 1
    if type(value) in NUMBERS and is_printed(frame, height):
        return Piece(value)
    if isinstance(value, torch.Tensor) and is_plain(frame, value) and is_reordered(frame, height):
        return Piece(value)
    return None


def is_plain(frame: Frame, tensor: torch.Tensor) -> bool:
    """Return whether torch's own code makes the text of a tensor. Then no code of the program runs for the
    text.
    """
    return frame.interp.trace.torch.python_type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _format(frame: Frame, value: object, spec: object) -> Any:
    """Return ``format(value, spec)``. An empty specification leaves a string unchanged."""
    if type(value) is str and not spec:
        return value
    return frame.calls.call(format, (value, spec), {})


def _convert(frame: Frame, value: object, which: int) -> Any:
    """Return ``value`` after the conversion ``which`` of a replacement field.

    0 is no conversion, 1 is ``!s``, 2 is ``!r``, 3 is ``!a``.
    """
    conversion = _CONVERSIONS[which]
    return value if conversion is None else frame.calls.call(conversion, (value,), {})


def _defer_text(frame: Frame, value: object, which: int, spec: object) -> Text | None:
    """Return the ``Text`` of a value, or None if the value must be formatted now."""
    piece = _piece(frame, value)
    if piece is not None and which:
        piece = piece.converted(_LETTERS[which])
    if piece is not None and spec != "":
        piece = piece.formatted(spec)
    return None if piece is None else Text((piece,))


def _text_of(frame: Frame, value: object, which: int, spec: object) -> Any:
    """Return the text of a replacement field: a ``Text`` if it can be formatted later, otherwise a string."""
    text = _defer_text(frame, value, which, spec)
    if text is not None:
        return text
    if type(value) is Text:
        value = value.settle(frame.interp.trace)
    return _format(frame, _convert(frame, value, which), spec)


def format_value(frame: Frame, flags: int) -> None:
    """Convert and format a value (Python 3.11 and 3.12).

    Bits 0 and 1 of ``flags`` are the conversion (``_convert``). Bit 2 says that a specification is on the
    stack.
    """
    spec = frame.stack.pop() if flags & 4 else ""
    frame.stack[-1] = _text_of(frame, frame.stack[-1], flags & 3, spec)


def convert_value(frame: Frame, which: int) -> None:
    """Replace the top of the stack by its ``str``, ``repr`` or ``ascii`` (from Python 3.13 on).

    ``which`` is the conversion (see ``_convert``).
    """
    value = frame.stack[-1]
    text = _defer_text(frame, value, which, "")
    if type(value) is Text:
        value = value.settle(frame.interp.trace) if text is None else value
    frame.stack[-1] = _convert(frame, value, which) if text is None else text


def format_simple(frame: Frame, _operand: object) -> None:
    """Format the top of the stack without a specification (from Python 3.13 on)."""
    frame.stack[-1] = _text_of(frame, frame.stack[-1], 0, "")


def format_with_spec(frame: Frame, _operand: object) -> None:
    """Format the value below the specification on the stack (from Python 3.13 on)."""
    spec = frame.stack.pop()
    frame.stack[-1] = _text_of(frame, frame.stack[-1], 0, spec)


# --- values that are only printed ----------------------------------------------------------------


# A walk ends at a step that is not in these tables, because such a step may read the value.
_ADDED: Final[dict[Any, tuple[int, int]]] = {
    **dict.fromkeys((stack.nop, local_slots.delete_fast), (0, 0)),
    **dict.fromkeys(
        (
            *(local_slots.load_fast, local_slots.load_deref, names.load_global),
            *(stack.load_const, stack.push_null),
        ),
        (0, 1),
    ),
    **dict.fromkeys(
        (local_slots.load_fast_load_fast, names.load_global_null_below, names.load_global_null_above), (0, 2)
    ),
    **dict.fromkeys((attributes.load_attr, operators.unary_op), (1, 1)),
    **dict.fromkeys((attributes.load_method_null_below, attributes.load_method_null_above), (1, 2)),
    **dict.fromkeys((operators.binary_op, operators.binary_subscr), (2, 1)),
}
"""Maps a handler to the numbers of stack values that its step pops and pushes."""

_FORMATS: Final = (format_value, convert_value, format_simple, format_with_spec)
_STORES: Final = (
    local_slots.store_fast,
    local_slots.store_fast_load_fast,
    local_slots.root_store_fast_load_fast,
)
STORED: Final = -1
_CALLS: Final = (calling.call, calling.call_with_names, calling.call_kw)


def _specs(step: Step) -> int:
    """Return the number of format specifications, 0 or 1, that a formatting step pops."""
    handler, operand = step
    return int(handler is format_with_spec or (handler is format_value and bool(operand & 4)))


def _call_takes(step: Step, before: Step) -> tuple[int, int, int]:
    """Return three numbers for a call: all arguments, positional arguments, and stack slots above the
    arguments.

    ``before`` is the step before the call.
    """
    handler, operand = step
    if handler is calling.call:
        return operand, operand, 0
    if handler is calling.call_with_names:
        return operand[0], operand[0] - len(operand[1]), 0
    # From 3.13 on, the names of arguments are on the stack. The step before the call has loaded them.
    by_name = before[1] if before[0] is stack.load_const else ()
    return operand, operand - len(by_name) if by_name else 0, 1


def _plain(step: Step) -> Step:
    """Return the step with its original handler, if another handler has replaced it."""
    handler, operand = step
    return getattr(handler, "plain", handler), operand


class _Walk:
    """A walk that follows a stack value through the steps of a program to the use of the value. The steps do
    not run.

    ``above`` is the number of stack slots above the value. ``under`` is the number of values below it that
    have been joined with it in one f-string.
    """

    def __init__(self, steps: tuple[Step, ...], position: int, above: int, *, as_text: bool = True) -> None:
        self.steps = steps
        self.position = position
        self.above = above
        self.under = 0
        self.as_text = as_text
        """Whether the value may become part of an f-string. If not, the value may also be passed as an
        argument by name.
        """

    def to_call(self) -> int | None:
        """Return the number of stack values between a called function and the followed value, which is its
        argument.

        Return ``STORED`` if a local variable gets the value. Return None if another step reads the value, or
        if execution may not reach the call.
        """
        # A jump may lead backward. The bound ends a walk around a loop without a call.
        for _ in range(len(self.steps)):
            step = _plain(self.steps[self.position])
            if step[0] in _CALLS:
                count, positional, top = _call_takes(step, self.steps[self.position - 1])
                positional = positional if self.as_text else count
                if self.above < count + top:
                    index = count - 1 - (self.above - top)
                    return self.under + index if self.above >= top and index < positional else None
                if self.above < count + top + 2:
                    return None  # the value is the callable, or the self of the callable
                self.above -= count + top + 1
            elif step[0] in _STORES and not self.above:
                if step[0] is local_slots.store_fast or len({*step[1]}) > 1:
                    return STORED
            elif not self._steps_over(step):
                return None
            if step[0] is not flow.jump:
                self.position += 1
        return None

    def _steps_over(self, step: Step) -> bool:
        """Return whether ``step`` leaves the value unread. If so, move the walk to the next step."""
        handler, operand = step
        if handler in _FORMATS:
            specs = _specs(step)
            if self.above < specs + (not self.as_text):
                return False  # the value is the format specification
            self.above -= specs
        elif handler is containers.build_string:
            if self.above < operand and not self.as_text:
                return False
            if self.above < operand:
                self.under += operand - 1 - self.above
                self.above = 0
            else:
                self.above -= operand - 1
        elif handler is containers.build_tuple and self.above >= operand:
            self.above -= operand - 1
        elif handler is flow.jump:
            self.position = operand
        elif handler in _ADDED:
            taken, leaves = _ADDED[handler]
            if self.above < taken:
                return False
            self.above += leaves - taken
        else:
            return False
        return True


def _taker(frame: Frame, height: int, above: int) -> Any:
    """Return the function that gets a stack value as a positional argument, directly or in an f-string.

    Return ``STORED`` if a local variable gets the value, and None for any other use. The current step leaves
    the value on the stack with ``height`` values below it and ``above`` values above it.
    """
    between = _Walk(frame.program.steps, frame.pc + 1, above).to_call()
    if between == STORED:
        return STORED
    if between is None or height - between < 2:
        return None
    return function_of(frame.stack[height - between - 2 : height - between])


def function_of(slots: list[Any]) -> Any:
    """Return the called function, from the two stack slots below its arguments.

    Return None if one slot holds ``self``.
    """
    first, second = slots
    if first is NULL:
        return second
    return first if second is NULL else None


def is_printed(frame: Frame, height: int, above: int = 0) -> bool:
    """Return whether a value only becomes an argument of ``print``. For ``height`` and ``above``, see
    ``_taker``.
    """
    return _taker(frame, height, above) is print


def is_passed_on(frame: Frame, height: int, above: int = 0) -> bool:
    """Return whether a value only becomes a local variable of this frame or of a frame that it calls.

    For ``height`` and ``above``, see ``_taker``.
    """
    walk = _Walk(frame.program.steps, frame.pc + 1, above, as_text=False)
    between = walk.to_call()
    if between is None or between == STORED or height - between < 2:
        return between == STORED
    fn: Any = next((slot for slot in frame.stack[height - between - 2 :] if slot is not NULL), None)
    fn = fn.__func__ if type(fn) is MethodType else fn
    return type(fn) is FunctionType and frame.calls.is_interpreted(fn)


def is_reordered(frame: Frame, height: int, above: int = 0) -> bool:
    """Return whether a value only becomes a local variable or an argument of a reorderable function.

    Each load of the variable is checked in the same way (``reordered_texts``). For ``height`` and ``above``,
    see ``_taker``.
    """
    trace = frame.interp.trace
    if not trace.options.reorderable_functions:
        return False
    taker = _taker(frame, height, above)
    return taker is STORED or (taker is not None and _is_reorderable(trace, taker))


def _is_reorderable(trace: Trace, function: object) -> bool:
    """Return whether the option ``reorderable_functions`` contains ``function``, an object of the trace."""
    return any(_is_same(trace, function, chosen) for chosen in trace.options.reorderable_functions)


def _is_same(trace: Trace, function: object, chosen: object) -> bool:
    """Return whether ``function``, an object of the trace, is ``chosen``, a function in the options.

    Two bound methods match if their functions and original receivers are the same objects.
    """
    if type(function) is not MethodType:
        return function is chosen
    if type(chosen) is not MethodType:
        return function.__func__ is chosen
    receiver = trace.objects.original_of(function.__self__)
    return function.__func__ is chosen.__func__ and receiver is chosen.__self__
