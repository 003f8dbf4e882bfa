"""Loads of something whose ``append`` or ``extend`` is called next: a list from outside is not looked into.

``decode`` puts these in the place of the plain loads (``GROWING``). What is found is no list that nobody has read, the
plain load does the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_capture.interpreter.handlers import attributes, local_slots, names
from fxstack_capture.world.growing import GROWING_METHODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fxstack_capture.interpreter.frame import Frame
    from fxstack_capture.interpreter.program import Handler, Step


def load_fast(frame: Frame, index: int) -> None:
    """In the root frame; other frames have no arguments that are not entered."""
    found = frame.world.growing.lazily(frame.fast[index])
    if found is None:
        local_slots.root_load_fast(frame, index)
    else:
        frame.stack.append(found)


def store_fast_load_fast(frame: Frame, indices: tuple[int, int]) -> None:
    local_slots.store_fast(frame, indices[0])
    load_fast(frame, indices[1])


def load_deref(frame: Frame, index: int) -> None:
    found = frame.world.growing.in_cell(frame.fast[index])
    if found is None:
        local_slots.load_deref(frame, index)
    else:
        frame.stack.append(found)


def load_global(frame: Frame, name: str) -> None:
    found = frame.world.growing.in_globals(frame.globals, name)
    if found is None:
        names.load_global(frame, name)
    else:
        frame.stack.append(found)


def load_attr(frame: Frame, name: str) -> None:
    found = frame.world.growing.in_attribute(frame.stack[-1], name)
    if found is None:
        attributes.load_attr(frame, name)
    else:
        frame.stack[-1] = found


_PLAIN: Mapping[Handler, Handler] = {
    local_slots.load_fast: load_fast,
    local_slots.store_fast_load_fast: store_fast_load_fast,
    local_slots.load_deref: load_deref,
    names.load_global: load_global,
    attributes.load_attr: load_attr,
}
_METHOD_LOADS = (attributes.load_method_null_below, attributes.load_method_null_above)


def growing(steps: list[Step]) -> tuple[Step, ...]:
    """The steps, with loads in front of a growing method replaced."""
    for place, (handler, operand) in enumerate(steps[1:]):
        if handler in _METHOD_LOADS and operand in GROWING_METHODS:
            before, what = steps[place]
            steps[place] = _PLAIN.get(before, before), what
    return tuple(steps)
