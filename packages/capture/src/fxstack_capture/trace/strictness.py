"""``error_on_graph_break``: makes graph breaks errors in a part of a program.

A nested part can allow graph breaks again.

The setting is plain state of the thread. Compiled code reads and writes it like any other state. Therefore a
trace knows the setting at every call, and code after a break has the right setting.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Final, Self

from fxstack_capture.trace.state import Trace

STATE: Final = threading.local()
"""The setting of the running thread, as attribute ``error``."""


class error_on_graph_break(contextlib.ContextDecorator):
    """Raise ``Unsupported`` at a graph break in a ``with`` block or a decorated function.

    False: break there. The setting takes effect when code is compiled, inside compiled functions and around their
    calls. ``fullgraph=True`` allows no break, whatever this setting says.
    """

    __module__ = "fxstack_capture"  # Not a module of the compiler: code after a break makes the object again.

    def __init__(self, error: bool) -> None:
        self._error = error
        self._before: list[bool] = []
        """The settings to restore. One object may be entered several times."""

    def __enter__(self) -> Self:
        self._before.append(getattr(STATE, "error", False))
        STATE.error = self._error
        return self

    def __exit__(self, *_: object) -> None:
        STATE.error = self._before.pop()


def is_error(trace: Trace) -> bool:
    """Whether a graph break is an error at the present place of ``trace``.

    Asked when an attempt ends with a graph break. The program may have changed the setting in this trace.
    """
    objects = trace.objects
    state = objects.instances.get(id(STATE))
    thread_state = {} if state is None else state.proxy
    return bool(thread_state.get("error", getattr(STATE, "error", False)))
