"""Steps that call polyfills in place of C code, for traces with a graph break below C code.

Each handler asks ``calls`` which function to call (``calls.polyfills``). The step pops its operands before
the call, so a resume function can continue after the call (``emit.resume``). A step that jumps first replaces
its operand by the result of the call. Then it jumps by that result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.handlers import attributes, flow, operators
from fxstack_capture.interpreter.handlers.deferred import deferred_locals as deferred
from fxstack_capture.interpreter.handlers.deferred import formatting
from fxstack_capture.interpreter.program import Handler, Step
from fxstack_capture.trace.state import Request

Rule = Any
"""``rule(original, frame, operand)`` replaces the handler ``original``, and may run it."""


def with_polyfills(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps, with rules for the handlers that call the program through C code. ``steps_of_trace``
    calls this.
    """
    return tuple(_replace_step(handler, operand) for handler, operand in steps)


def _replace_step(handler: Handler, operand: object) -> Step:
    """Return the step that runs the rule of ``handler``. Without a rule, return the step itself."""
    rule = _RULES.get(handler)
    return (handler, operand) if rule is None else (partial(rule, handler), operand)


def _answer(frame: Frame, request: Request) -> Any:
    """Return the result of a resumable call of the polyfill in ``request`` (a function and its arguments)."""
    return frame.calls.call_linked(*request, {})


def _replace(frame: Frame, count: int, request: Request) -> None:
    """Pop ``count`` values from the stack, and push the result of the request."""
    del frame.stack[-count:]
    frame.stack.append(_answer(frame, request))


def _rule_of_request(
    takes: int,
    operands_of: Callable[[list[Any], Any], tuple[Any, ...]],
    *,
    leaves: bool = True,
    convert: Callable[[Handler, Any], Callable[..., Any] | None] | None = None,
) -> Rule:
    """Make the rule of a step that pops ``takes`` values.

    ``operands_of(stack, operand)`` returns the arguments of ``calls.request``. If ``calls.request`` returns
    None, the original handler runs. ``leaves``: whether the step pushes the result. ``convert(original,
    operand)`` returns the polyfill that converts the result, or None.
    """

    def rule(original: Handler, frame: Frame, operand: object) -> int | None:
        """Run the polyfill for the operands on the stack. If ``calls`` has none, run the original handler."""
        request = frame.calls.request(*operands_of(frame.stack, operand))
        if request is None:
            return original(frame, operand)
        conversion = None if convert is None else convert(original, operand)
        if conversion is not None:
            request = conversion, request
        if leaves:
            _replace(frame, takes, request)
        else:
            del frame.stack[-takes:]
            _answer(frame, request)
        return None

    return rule


_binary = _rule_of_request(
    2,
    lambda stack, op: ("binary", op, *stack[-2:]),
    convert=lambda original, _: polyfill.as_bool if original is operators.compare_to_bool else None,
)


def _truth(original: Handler, frame: Frame, operand: object) -> int | None:
    """Replace the condition by its truth, then run the original handler. The polyfill of ``__bool__``
    computes the truth.
    """
    value = frame.stack[-1]
    request = None if type(value) is bool else frame.calls.request("truth", value)
    if request is not None:
        _replace(frame, 1, request)
    return original(frame, operand)


def _format(original: Handler, frame: Frame, flags: Any) -> int | None:
    """Format a value by a polyfill. If there is a conversion or specification, run the original handler."""
    plain = original is not formatting.format_value or flags & 7 == 0
    return _plain_format(original, frame, flags) if plain else original(frame, flags)


_plain_format = _rule_of_request(1, lambda stack, _flags: ("formatting", stack[-1]))


# --- attributes ----------------------------------------------------------------------------------


def _load_attr(original: Handler, frame: Frame, name: str) -> int | None:
    """Load an attribute by a polyfill, if code of the program computes it. A method load pushes NULL in
    addition.
    """
    request = frame.calls.request("attribute", frame.stack[-1], name)
    if request is None:
        return original(frame, name)
    _replace(frame, 1, request)
    if original is attributes.load_method_null_below:
        frame.stack.insert(-1, NULL)
    elif original is attributes.load_method_null_above:
        frame.stack.append(NULL)
    return None


# --- loops ---------------------------------------------------------------------------------------


def _for_iter(original: Handler, frame: Frame, target: int) -> int | None:
    """Advance an iterator of the program by the polyfill ``next_or_end``. At the end, it returns ``End``."""
    request = frame.calls.request("advance", frame.stack[-1])
    if request is None:
        return original(frame, target)
    item = _answer(frame, (polyfill.next_or_end, request))
    if item is polyfill.End:
        frame.stack.pop()
        return target
    frame.stack.append(item)
    return None


_RULES: dict[Handler, Rule] = {
    operators.binary_op: _binary,
    operators.compare_to_bool: _binary,
    operators.contains_op: _rule_of_request(
        2,
        lambda stack, _: ("binary", operator.contains, stack[-1], stack[-2]),
        convert=lambda _, invert: polyfill.negate if invert else None,
    ),
    operators.unary_op: _rule_of_request(1, lambda stack, op: ("unary", op, stack[-1])),
    operators.unary_not: _rule_of_request(
        1, lambda stack, _: ("truth", stack[-1]), convert=lambda _original, _: polyfill.negate
    ),
    operators.to_bool: _truth,
    flow.pop_jump_if_true: _truth,
    flow.pop_jump_if_false: _truth,
    formatting.format_value: _format,
    formatting.format_simple: _format,
    operators.binary_slice: _rule_of_request(
        3, lambda stack, _: ("item", "__getitem__", stack[-3], slice(*stack[-2:]))
    ),
    operators.store_slice: _rule_of_request(
        4, lambda stack, _: ("item", "__setitem__", stack[-3], slice(*stack[-2:]), stack[-4]), leaves=False
    ),
    operators.delete_subscr: _rule_of_request(
        2, lambda stack, _: ("item", "__delitem__", *stack[-2:]), leaves=False
    ),
    attributes.store_attr: _rule_of_request(
        2, lambda stack, name: ("store", stack[-1], name, stack[-2]), leaves=False
    ),
    attributes.delete_attr: _rule_of_request(
        1, lambda stack, name: ("delete", stack[-1], name), leaves=False
    ),
    attributes.load_attr: _load_attr,
    attributes.load_method_null_below: _load_attr,
    attributes.load_method_null_above: _load_attr,
    flow.get_iter: _rule_of_request(1, lambda stack, _: ("iterate", stack[-1])),
    flow.for_iter: _for_iter,
    deferred.for_iter: _for_iter,
}
