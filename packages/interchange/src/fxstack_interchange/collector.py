"""Pauses of Python's cyclic garbage collector and of signal handlers while a compiler runs.

A compilation makes hundreds of thousands of objects and almost no garbage cycles. The program may hold
millions of other objects. Without a pause, the collector traverses all of these objects several times and
frees almost nothing (0.2 of 1.1 seconds for a small BERT).
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, current_thread, main_thread

_CHANGING = Lock()
_pauses = 0
_enabled_before = False


@contextmanager
def paused_collector() -> Iterator[None]:
    """Disable automatic collection until the outermost pause of all threads ends.

    A collector that was disabled before stays disabled.
    """
    global _pauses, _enabled_before  # noqa: PLW0603 - the collector is the process's, and so is this
    with _CHANGING:
        if _pauses == 0:
            _enabled_before = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _CHANGING:
            _pauses -= 1
            if _pauses == 0 and _enabled_before:
                gc.enable()


@contextmanager
def held_signals() -> Iterator[None]:
    """Defer the program's signal handlers to the end of the context.

    If a handler raises inside of torch's C++, the process ends. If a handler raises inside of a compiler, its
    exception looks like an exception of the compiler. A second Ctrl-C runs its handler at once. Python runs
    handlers only in the main thread, so other threads defer nothing.
    """
    handlers: dict[int, object] = {}
    if current_thread() is main_thread():
        numbers = signal.valid_signals()
        handlers = {number: current for number in numbers if callable(current := signal.getsignal(number))}
    arrived: dict[int, None] = {}

    def hold(number: int, frame: object) -> None:
        """Note a signal for the end of the block. A second Ctrl-C runs the program's handler now."""
        if number == signal.SIGINT and number in arrived:
            handlers[signal.SIGINT](number, frame)  # type: ignore[operator]
        arrived[number] = None

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is hold:  # otherwise a backend has set its own handler
                signal.signal(number, handler)  # type: ignore[arg-type]
        for number in arrived:
            signal.raise_signal(number)
