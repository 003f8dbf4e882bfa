"""``error_on_graph_break``: parts of a program in which a graph break is an error, and parts of these in which it is none.

What is in force is plain state of the thread. Compiled code reads and writes it like any other, so a trace knows what it
is at every call, and code behind a break what it was there.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Final, Self

from fxstack_capture.trace.state import Trace

STATE: Final = threading.local()


class error_on_graph_break(contextlib.ContextDecorator):
    """Raise ``Unsupported`` where a graph breaks in a ``with`` block or a decorated function; False: break there.

    Has its effect when code is compiled, inside of compiled functions and around their calls. ``fullgraph=True`` allows
    no break, whatever this says.
    """

    __module__ = (
        "fxstack_capture"  # the program's, not a part of the compiler: it is made again behind a break
    )

    def __init__(self, error: bool) -> None:
        self._error = error
        self._before: list[bool] = []

    def __enter__(self) -> Self:
        self._before.append(getattr(STATE, "error", False))
        STATE.error = self._error
        return self

    def __exit__(self, *_: object) -> None:
        STATE.error = self._before.pop()


def is_error(trace: Trace) -> bool:
    """Whether a graph break is an error where ``trace`` is now."""
    objects = trace.objects
    state = objects.instances.get(id(STATE))
    seen = {} if state is None else state.proxy
    return bool(seen.get("error", getattr(STATE, "error", False)))
