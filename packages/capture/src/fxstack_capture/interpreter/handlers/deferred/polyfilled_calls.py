"""Steps of a trace that found a graph break below C code: functions that C code would call are called by the step itself.

Each handler asks ``calls`` which function that is (``calls.polyfills``). The step has then taken from the stack
what it takes, so that the frame can be continued behind the call (``emit.resume``). Steps that jump leave what was
found in the place of what they look at, and then look at that.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

from fxstack_capture.bytecode.program import Handler, Step
from fxstack_capture.calls.polyfills import functions as polyfill
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.handlers import attributes, flow, operators
from fxstack_capture.interpreter.handlers.deferred import deferred_locals as deferred
from fxstack_capture.interpreter.handlers.deferred import formatting
from fxstack_capture.interpreter.values import NULL
from fxstack_capture.trace.state import Request

Rule = Any
"""A handler that is given the original one before the frame."""


def unfolded(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, with those that C code would do replaced."""
    return tuple(_instead(handler, operand) for handler, operand in steps)


def _instead(handler: Handler, operand: object) -> Step:
    rule = _RULES.get(handler)
    return (handler, operand) if rule is None else (partial(rule, handler), operand)


def _ask(frame: Frame, what: str, *operands: object) -> Request | None:
    return frame.calls.request(what, *operands)


def _answer(frame: Frame, request: Request) -> Any:
    return frame.calls.call_linked(*request, {})


def _replace(frame: Frame, count: int, request: Request) -> None:
    """Take ``count`` values from the stack, leave what the request comes to."""
    del frame.stack[-count:]
    frame.stack.append(_answer(frame, request))


def _done_or(
    original: Handler, frame: Frame, operand: object, asked: tuple[int, Request | None]
) -> int | None:
    """A step that takes so many values and leaves one; the original one, where there is no request."""
    count, request = asked
    if request is None:
        return original(frame, operand)
    _replace(frame, count, request)
    return None


# --- operators -----------------------------------------------------------------------------------


def _binary(original: Handler, frame: Frame, op: object) -> int | None:
    request = _ask(frame, "binary", op, *frame.stack[-2:])
    if request is None:
        return original(frame, op)
    if original is operators.compare_to_bool:
        request = polyfill.as_bool, request
    _replace(frame, 2, request)
    return None


def _contains(original: Handler, frame: Frame, invert: int) -> int | None:
    item, container = frame.stack[-2:]
    request = _ask(frame, "binary", operator.contains, container, item)
    if request is None:
        return original(frame, invert)
    _replace(frame, 2, (polyfill.negated, request) if invert else request)
    return None


def _unary(original: Handler, frame: Frame, op: object) -> int | None:
    return _done_or(original, frame, op, (1, _ask(frame, "unary", op, frame.stack[-1])))


def _not(original: Handler, frame: Frame, operand: object) -> int | None:
    request = _ask(frame, "truth", frame.stack[-1])
    if request is None:
        return original(frame, operand)
    _replace(frame, 1, (polyfill.negated, request))
    return None


def _truth(original: Handler, frame: Frame, operand: object) -> int | None:
    """Also of jumps, which then find a bool."""
    value = frame.stack[-1]
    request = None if type(value) is bool else _ask(frame, "truth", value)
    if request is not None:
        _replace(frame, 1, request)
    return original(frame, operand)


def _format(original: Handler, frame: Frame, flags: Any) -> int | None:
    """Without conversion and specification."""
    plain = original is not formatting.format_value or flags & 7 == 0
    request = _ask(frame, "formatting", frame.stack[-1]) if plain else None
    return _done_or(original, frame, flags, (1, request))


# --- items and attributes ------------------------------------------------------------------------


def _slice(original: Handler, frame: Frame, operand: object) -> int | None:
    container, start, stop = frame.stack[-3:]
    request = _ask(frame, "item", "__getitem__", container, slice(start, stop))
    return _done_or(original, frame, operand, (3, request))


def _store_slice(original: Handler, frame: Frame, operand: object) -> int | None:
    value, container, start, stop = frame.stack[-4:]
    request = _ask(frame, "item", "__setitem__", container, slice(start, stop), value)
    return _done(original, frame, operand, (4, request))


def _delete_item(original: Handler, frame: Frame, operand: object) -> int | None:
    request = _ask(frame, "item", "__delitem__", *frame.stack[-2:])
    return _done(original, frame, operand, (2, request))


def _store_attr(original: Handler, frame: Frame, name: str) -> int | None:
    value, obj = frame.stack[-2:]
    return _done(original, frame, name, (2, _ask(frame, "store", obj, name, value)))


def _delete_attr(original: Handler, frame: Frame, name: str) -> int | None:
    return _done(original, frame, name, (1, _ask(frame, "delete", frame.stack[-1], name)))


def _done(original: Handler, frame: Frame, operand: object, asked: tuple[int, Request | None]) -> int | None:
    """A step that takes so many values and has no use for a result."""
    count, request = asked
    if request is None:
        return original(frame, operand)
    del frame.stack[-count:]
    _answer(frame, request)
    return None


def _load_attr(original: Handler, frame: Frame, name: str) -> int | None:
    request = _ask(frame, "attribute", frame.stack[-1], name)
    if request is None:
        return original(frame, name)
    _replace(frame, 1, request)
    if original is attributes.load_method_null_below:
        frame.stack.insert(-1, NULL)
    elif original is attributes.load_method_null_above:
        frame.stack.append(NULL)
    return None


# --- loops ---------------------------------------------------------------------------------------


def _iterate(original: Handler, frame: Frame, operand: object) -> int | None:
    return _done_or(original, frame, operand, (1, _ask(frame, "iterate", frame.stack[-1])))


def _for_iter(original: Handler, frame: Frame, target: int) -> int | None:
    request = _ask(frame, "advance", frame.stack[-1])
    if request is None:
        return original(frame, target)
    found = _answer(frame, (polyfill.next_or_end, request))
    if found is polyfill.End:
        frame.stack.pop()
        return target
    frame.stack.append(found)
    return None


_RULES: dict[Handler, Rule] = {
    operators.binary_op: _binary,
    operators.compare_to_bool: _binary,
    operators.contains_op: _contains,
    operators.unary_op: _unary,
    operators.unary_not: _not,
    operators.to_bool: _truth,
    flow.pop_jump_if_true: _truth,
    flow.pop_jump_if_false: _truth,
    formatting.format_value: _format,
    formatting.format_simple: _format,
    operators.binary_slice: _slice,
    operators.store_slice: _store_slice,
    operators.delete_subscr: _delete_item,
    attributes.store_attr: _store_attr,
    attributes.delete_attr: _delete_attr,
    attributes.load_attr: _load_attr,
    attributes.load_method_null_below: _load_attr,
    attributes.load_method_null_above: _load_attr,
    flow.get_iter: _iterate,
    flow.for_iter: _for_iter,
    deferred.for_iter: _for_iter,
}
