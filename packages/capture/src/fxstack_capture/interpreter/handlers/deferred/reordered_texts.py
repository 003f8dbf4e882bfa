"""Steps of traces with reorderable functions. Such functions get strings made of tensors after the graph has
run.

``str``, ``repr``, ``str.format`` and ``%`` of tensors make a ``Text`` if a reorderable function or a local
variable gets the string (``formatting.is_reordered``). f-strings do the same without these steps. If a later
step uses the variable in any other way, the graph breaks before the load of the variable.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from types import BuiltinMethodType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.handlers import calling, operators
from fxstack_capture.interpreter.handlers.deferred.formatting import function_of, is_plain, is_reordered
from fxstack_capture.interpreter.handlers.deferred.polyfilled_calls import with_polyfills
from fxstack_capture.interpreter.handlers.variables import local_slots
from fxstack_capture.interpreter.program import Handler, Step
from fxstack_capture.objects.printed_texts import NUMBERS, LaterString, Piece, Text
from fxstack_capture.trace.constants import IMMUTABLE_TYPES
from fxstack_capture.trace.state import Trace

# Limits: three kinds of strings are made at once, which ends the graph: a string with a format specification
# or an attribute of a tensor, such as ``"{:.2f}".format(t)``, a string that + joins, and a string in a
# container.


def steps_of_trace(trace: Trace, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return ``steps`` with the rules that ``trace`` needs for polyfills and reorderable functions.
    ``steps_of`` calls this.
    """
    changed = with_polyfills(steps) if trace.plan.polyfills else steps
    if not trace.options.reorderable_functions:
        return changed
    pairs = zip(steps, changed, strict=True)
    return tuple(_replace_step(getattr(handler, "plain", handler), step) for (handler, _), step in pairs)


def _replace_step(plain: Handler, step: Step) -> Step:
    """Return ``step`` with the rule of ``plain`` around its handler. Without a rule, return ``step`` itself."""
    rule = _RULES.get(plain)
    return step if rule is None else (partial(rule, step[0]), step[1])


# --- strings -------------------------------------------------------------------------------------


class _NotDeferredError(Exception):
    """Raised if the text of an argument cannot be made later. Making it may run code of the program, or it
    may change.
    """


def _defer_text(
    frame: Frame, takes: int, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Replace the ``takes`` top values by the ``Text`` of the call ``function(*args, **kwargs)``, and return
    True.

    Return False if the string must be made at once. The call is first tried with sample arguments, because a
    deferred call must not raise.
    """
    if not any(_holds_tensor(value) for value in (*args, *kwargs.values())):
        return False
    height = len(frame.stack) - takes
    try:
        example = [_example(frame, value) for value in args]
        function(*example, **{name: _example(frame, value) for name, value in kwargs.items()})
    except Exception:  # the call itself raises, or breaks the graph
        return False
    if not is_reordered(frame, height):
        return False
    frame.stack[height:] = [Text((Piece(LaterString(function, args, kwargs)),))]
    return True


def _holds_tensor(value: object) -> bool:
    """Return whether a value is a tensor, or a tuple that contains a tensor at any depth."""
    return isinstance(value, torch.Tensor) or (type(value) is tuple and any(map(_holds_tensor, value)))


def _example(frame: Frame, value: object) -> object:
    """Return the sample argument for ``value`` in the trial call of ``_defer_text``.

    The sample of a tensor or symbolic number is ``object()``. The trial then fails for a format that needs more
    than ``str`` or ``repr``, such as ``%d``. An immutable constant is its own sample. Raises _NotDeferredError for
    any other value: the value may change, or its text may run code of the program.
    """
    if isinstance(value, torch.Tensor) and is_plain(frame, value):
        return object()
    if type(value) in NUMBERS:
        return object()
    if type(value) is tuple:
        return tuple([_example(frame, part) for part in value])
    if type(value) in IMMUTABLE_TYPES:
        return value
    raise _NotDeferredError


def _rule_of_call(arguments: Callable[[Frame, Any], tuple[int, tuple[str, ...]]], top: int = 0) -> Any:
    """Make the rule of a call step.

    ``arguments(frame, operand)`` returns the number of arguments, and the names of the last arguments.
    ``top`` is the number of stack slots above the arguments.
    """

    def rule(original: Handler, frame: Frame, operand: object) -> int | None:
        """Defer the text that the call makes, or run the original handler."""
        return None if _is_later(frame, arguments(frame, operand), top) else original(frame, operand)

    return rule


def _is_later(frame: Frame, arguments: tuple[int, tuple[str, ...]], top: int) -> bool:
    """Defer the text of a call if possible. Return whether ``_defer_text`` has pushed the text.

    ``top`` is the number of stack slots above the arguments.
    """
    count, names = arguments
    end = len(frame.stack) - top
    values = frame.stack[end - count : end]
    fn = function_of(frame.stack[end - count - 2 : end - count])
    split = count - len(names)
    args, kwargs = tuple(values[:split]), dict(zip(names, values[split:], strict=True))
    if isinstance(fn, BuiltinMethodType) and type(fn.__self__) is str and fn.__name__ == "format":
        return _defer_text(frame, count + top + 2, str.format, (fn.__self__, *args), kwargs)
    makes_text = fn is str or fn is repr or fn is str.format
    return makes_text and _defer_text(frame, count + top + 2, fn, args, kwargs)


def _binary(original: Handler, frame: Frame, op: Any) -> int | None:
    """Defer the text of ``string % values``, or run the original handler."""
    left, right = frame.stack[-2:]
    is_format = op is operator.mod and type(left) is str
    return (
        None if is_format and _defer_text(frame, 2, operator.mod, (left, right), {}) else original(frame, op)
    )


# --- loads ---------------------------------------------------------------------------------------


def _demand_reordered(frame: Frame, value: object, height: int, above: int = 0) -> None:
    """Break the graph if ``value`` is a ``Text`` that is used by anything but a reorderable function.

    For ``height`` and ``above``, see ``formatting._taker``.
    """
    if type(value) is Text and not is_reordered(frame, height, above):
        raise graph_break("unsupported-call", "a use of the text of a tensor")


def _load(original: Handler, frame: Frame, index: int) -> int | None:
    """Push a local. Before, check that only reorderable functions use a text in it."""
    _demand_reordered(frame, frame.fast[index], len(frame.stack))
    return original(frame, index)


def _load_two(original: Handler, frame: Frame, indices: tuple[int, int]) -> int | None:
    """Push two locals. Before, check that only reorderable functions use a text in either."""
    height = len(frame.stack)
    _demand_reordered(frame, frame.fast[indices[0]], height, above=1)
    _demand_reordered(frame, frame.fast[indices[1]], height + 1)
    return original(frame, indices)


def _store_and_load(original: Handler, frame: Frame, indices: tuple[int, int]) -> int | None:
    """Store a local and push another local. Only reorderable functions may use a text in the pushed local."""
    stored, loaded = indices
    value = frame.stack[-1] if stored == loaded else frame.fast[loaded]
    _demand_reordered(frame, value, len(frame.stack) - 1)
    return original(frame, indices)


def _take(original: Handler, frame: Frame, index: int) -> int | None:
    """Move a variable to the stack or to a cell. Break the graph for a ``Text``, because its uses are unknown
    there.
    """
    if type(frame.fast[index]) is Text:
        raise graph_break("unsupported-call", "a use of the text of a tensor")
    return original(frame, index)


_RULES: dict[Handler, Any] = {
    calling.call: _rule_of_call(lambda _frame, count: (count, ())),
    calling.call_with_names: _rule_of_call(lambda _frame, operand: operand),
    calling.call_kw: _rule_of_call(lambda frame, count: (count, frame.stack[-1]), top=1),
    operators.binary_op: _binary,
    local_slots.load_fast: _load,
    local_slots.load_fast_load_fast: _load_two,
    local_slots.store_fast_load_fast: _store_and_load,
    local_slots.root_store_fast_load_fast: _store_and_load,
    local_slots.load_fast_and_clear: _take,
    local_slots.root_load_fast_and_clear: _take,
    local_slots.make_cell: _take,
    local_slots.root_make_cell: _take,
}
"""Maps a plain handler to its wrapper. ``wrapper(handler, frame, operand)`` gets the handler that the trace
runs.
"""
