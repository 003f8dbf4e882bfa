"""``error_on_graph_break``: makes graph breaks errors in a part of a program.

A nested part can allow graph breaks again. The setting is ordinary state of the thread, which compiled code
reads and writes. Therefore a trace knows the setting at every call, and code after a graph break has the
right setting.
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

    With False, the graph breaks there. The setting takes effect when code is compiled, inside compiled
    functions and around their calls. With ``fullgraph=True``, every break is an error regardless of this
    setting.
    """

    # The name is not a module of the compiler, because code after a graph break makes the object again.
    __module__ = "fxstack_capture"

    def __init__(self, error: bool) -> None:
        self._error = error
        self._before: list[bool] = []
        """The settings to restore. The same object may be entered several times."""

    def __enter__(self) -> Self:
        self._before.append(getattr(STATE, "error", False))
        STATE.error = self._error
        return self

    def __exit__(self, *_: object) -> None:
        STATE.error = self._before.pop()


def is_error(trace: Trace) -> bool:
    """Whether a graph break is an error at the current place of ``trace``.

    The driver asks this when an attempt ends with a graph break. The program may have changed the setting
    during the trace.
    """
    objects = trace.objects
    state = objects.instances.get(id(STATE))
    thread_state = {} if state is None else state.proxy
    return bool(thread_state.get("error", getattr(STATE, "error", False)))
