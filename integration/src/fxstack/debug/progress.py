"""One line on the terminal while something compiles for more than half a second.

On by default where stderr is a terminal; ``FXSTACK_PROGRESS=0`` turns it off, ``FXSTACK_PROGRESS=1`` on anywhere. The line
is removed when the compilation ends, and before a listener of ``FXSTACK_DEBUG`` prints. A file gets lines without control
characters: one for each compilation of more than five seconds, and one at its end.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from contextlib import suppress
from time import monotonic
from typing import Final, TextIO

from fxstack.log import Captured, Compiled, Listener, StageTime
from fxstack_interchange.passes import PassDone

VARIABLE: Final = "FXSTACK_PROGRESS"
PATIENCE: Final = 0.5
"""Seconds that a compilation takes on a terminal before the line appears."""
PATIENCE_OF_FILES: Final = 5.0
FORGOTTEN: Final = 120.0
"""Seconds without an event after which a compilation counts as ended: errors have no event."""
_ERASE: Final = "\r\x1b[K"
_WIDTH: Final = 100


def is_shown(stream: TextIO) -> bool:
    """Return whether the environment asks for a line on ``stream``."""
    value = os.environ.get(VARIABLE, "")
    return value != "0" if value else is_terminal(stream)


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal. The stream may be closed, None, or an object that only has ``write``."""
    try:
        return stream.isatty()
    except (AttributeError, OSError, ValueError):
        return False


class Progress(Listener):
    """Writes the line. A compilation begins with the event of its first pass or graph.

    A compilation ends when its frame is compiled (``on_end``). A backward that is compiled later belongs to no frame,
    so its compilation ends with its own ``on_compiled``.

    Several threads may compile: the line shows the newest event of any of them.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._began: float | None = None
        self._newest = 0.0
        self._graphs = 0
        self._stored = ""
        self._drawn = False

    @property
    def stream(self) -> TextIO:
        return sys.stderr if self._stream is None else self._stream

    def on_pass(self, done: PassDone) -> None:
        self._draw(done.subject, f"{done.stage}: {done.name}")

    def on_captured(self, captured: Captured, _code: object) -> None:
        self._graphs += 1
        self._draw(captured.place, "captured")

    def on_stored(self, captured: Captured, *, found: bool) -> None:
        self._stored = ", from the cache on disk" if found else ""
        self._draw(captured.place, "cache", begins=False)

    def on_compiled(
        self, captured: Captured, role: str, _graph_module: object, _made: Compiled
    ) -> Compiled | None:
        """Show that a graph is compiled. End the line after a backward that is compiled late."""
        self._draw(captured.place, f"compiled {role}")
        if role == "backward":
            self._end()  # a backward that is compiled late belongs to no frame
        return None

    def on_time(self, captured: Captured, time: StageTime) -> None:
        self._draw(captured.place, time.stage, begins=False)

    def on_end(self, _error: BaseException | None) -> None:
        self._end()

    def _draw(self, place: str, action: str, *, begins: bool = True) -> None:
        """Write the line. ``begins``: the event may begin a compilation.

        Any other event writes no line after the compilation's end.
        """
        if not is_shown(self.stream):
            return
        with self._lock:
            now = monotonic()
            if self._began is None and not begins:
                return
            stale = self._began is None or now - self._newest > FORGOTTEN
            self._began = now if self._began is None or stale else self._began
            self._newest = now
            terminal = is_terminal(self.stream)
            if now - self._began < (PATIENCE if terminal else PATIENCE_OF_FILES):
                return
            where = re.sub(r"[^\s(]*/", "", place)  # folders would fill the line
            seconds, graph = now - self._began, max(self._graphs, 1)
            text = f"fxstack: compiling {where}: graph {graph}, {action}{self._stored}, {seconds:.0f} s"
            if terminal:
                self._write(f"{_ERASE}{text[:_WIDTH]}")
            elif not self._drawn:
                self._write(f"{text}\n")
            self._drawn = True

    def _end(self) -> None:
        """Erase the line, or write the seconds of the compilation if the stream is no terminal."""
        with self._lock:
            if self._drawn:
                seconds = monotonic() - (self._began or 0.0)
                self._write(_ERASE if is_terminal(self.stream) else f"fxstack: compiled in {seconds:.1f} s\n")
            self._began, self._stored, self._drawn = None, "", False

    def _write(self, text: str) -> None:
        """Write to the stream at once. A stream that is closed or missing is no error."""
        with suppress(AttributeError, OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()
