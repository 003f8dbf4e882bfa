"""Python's cyclic garbage collector, paused while a compiler runs.

A compilation makes hundreds of thousands of objects and hardly any garbage cycles, beside a program that may hold millions of
objects: the collector would walk them all several times for nothing (0.2 of 1.1 seconds for a small BERT).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_CHANGING = Lock()
_pauses = 0
_enabled_before = False


@contextmanager
def paused_collector() -> Iterator[None]:
    """No automatic collection until the outermost pause of all threads ends; a collector that was off stays off."""
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
