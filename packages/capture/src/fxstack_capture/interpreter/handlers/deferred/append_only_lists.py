"""Lazy loads of lists from outside, where the following steps only append to the list, measure it or index
it.

When a program is decoded, ``append_only`` replaces the plain loads before ``.append(...)``, ``[i]`` and the
call of ``len(x)`` by the loads of this module. If the value is not a list, or if the program has already read
the list, the plain load runs.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Any

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.handlers import attributes, calling, operators, stack
from fxstack_capture.interpreter.handlers.deferred import deferred_locals as deferred
from fxstack_capture.interpreter.handlers.variables import local_slots, names
from fxstack_capture.interpreter.program import Handler, Instead, Step
from fxstack_capture.objects.kinds import append_only_lists as lists

Load = Callable[[Frame, Any, bool], None]
"""``load(frame, operand, lazily)`` pushes a value. If ``lazily``, a list is pushed without reading its items."""


def _loader(find: Callable[[Frame, Any], Any], plain: Handler) -> Load:
    """Return a load that pushes the lazy list that ``find(frame, operand)`` returns.

    If ``find`` returns None, the handler ``plain`` runs.
    """

    def load(frame: Frame, operand: object, lazily: bool) -> None:
        """Push the lazy list that ``find`` returns. Run the plain handler if it returns None."""
        lazy_list = find(frame, operand) if lazily else None
        if lazy_list is None:
            plain(frame, operand)
        else:
            frame.stack.append(lazy_list)

    return load


# Only the root frame has deferred arguments here; in other frames they are already wrapped.
_load_fast = _loader(
    lambda frame, index: lists.in_local(frame.objects, frame.fast[index]), deferred.enter_fast
)
_load_deref = _loader(
    lambda frame, index: lists.in_cell(frame.objects, frame.fast[index]), local_slots.load_deref
)
_load_global = _loader(
    lambda frame, name: lists.in_globals(frame.objects, frame.globals, name), names.load_global
)


def _load_fast_load_fast(frame: Frame, indices: tuple[int, int], lazily: bool) -> None:
    """Push a list, possibly without reading its items, and then its index. The next step is the subscript."""
    _load_fast(frame, indices[0], lazily)
    local_slots.root_load_fast(frame, indices[1])


def _store_fast_load_fast(frame: Frame, indices: tuple[int, int], lazily: bool) -> None:
    """Store a local, then push a local that may be a lazy list."""
    local_slots.store_fast(frame, indices[0])
    _load_fast(frame, indices[1], lazily)


def _load_global_null_below(frame: Frame, name: str, lazily: bool) -> None:
    """Push NULL and a global, which may be a lazy list."""
    frame.stack.append(NULL)
    _load_global(frame, name, lazily)


def _load_attr(frame: Frame, name: str, lazily: bool) -> None:
    """Load an attribute. If ``lazily`` and the attribute is a list that has not been read, its items are not
    read.
    """
    lazy_list = lists.in_attribute(frame.objects, frame.stack[-1], name) if lazily else None
    if lazy_list is None:
        attributes.load_attr(frame, name)
    else:
        frame.stack[-1] = lazy_list


_LOADS: Mapping[Handler, Load] = {
    local_slots.load_fast: _load_fast,
    local_slots.store_fast_load_fast: _store_fast_load_fast,
    local_slots.load_deref: _load_deref,
    names.load_global: _load_global,
    names.load_global_null_below: _load_global_null_below,
    attributes.load_attr: _load_attr,
}
_METHOD_LOADS = (attributes.load_method_null_below, attributes.load_method_null_above)
_INDICES = (stack.load_const, local_slots.load_fast)


def _load_deferred(load: Load, frame: Frame, operand: object) -> None:
    """Run a lazy load: the next steps append to the list or index it."""
    load(frame, operand, True)


def _load_measured(load: Load, frame: Frame, operand: object) -> None:
    """Load the argument of a call with one argument. If the called function is ``len``, the load is lazy.

    The function lies below the load, or below the object whose attribute is loaded.
    """
    below = frame.stack[-3:-1] if load is _load_attr else frame.stack[-2:]
    called = [value for value in below if value is not NULL]
    load(frame, operand, bool(called) and called[-1] is builtins.len)


def _is_indexed(steps: list[Step], start: int) -> bool:
    """Return whether the steps from ``start`` on index the value on top of the stack, with ``[i]`` or ``[i +
    1]``.
    """
    following = [handler for handler, _ in steps[start : start + 4]]
    if following[1:2] == [operators.binary_subscr]:
        return following[0] in _INDICES
    computed = following[2:] == [operators.binary_op, operators.binary_subscr]
    return computed and all(handler in _INDICES for handler in following[:2])


def append_only(steps: list[Step]) -> tuple[Step, ...]:
    """Return the steps of a program, with lazy loads before ``.append``, ``[i]`` and ``len``. ``decode``
    calls this.
    """
    for index, (handler, operand) in enumerate(steps[:-1]):
        following, argument = steps[index + 1]
        load = _LOADS.get(handler)
        if handler is local_slots.load_fast_load_fast and following is operators.binary_subscr:
            steps[index] = Instead.of(handler, _load_deferred, _load_fast_load_fast), operand
        elif load is None:
            continue
        elif (following in _METHOD_LOADS and argument in lists.APPEND_METHODS) or _is_indexed(
            steps, index + 1
        ):
            steps[index] = Instead.of(handler, _load_deferred, load), operand
        elif following is calling.call and argument == 1:
            steps[index] = Instead.of(handler, _load_measured, load), operand
    return tuple(steps)
