"""Write the events of all compilations of a process as JSON lines, each when it happens."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

import torch

from fxstack.trace.codec import to_line
from fxstack.trace.records import VERSION, Body, Event, Started
from fxstack_interchange.user_warnings import warn_user


def describe_process() -> Started:
    """Return the first record of this process."""
    rank = os.environ.get("RANK", "")
    return Started(
        version=VERSION,
        process=os.getpid(),
        rank=int(rank) if rank.isdecimal() else -1,
        started=time.time(),
        command=tuple(sys.argv),
        python=platform.python_version(),
        torch=str(torch.__version__),
        fxstack=version("fxstack"),
        machine=f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads",
    )


class TraceWriter:
    """Appends events to ``trace-PID.jsonl`` in a folder. A child process after ``fork`` gets a file of its own."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._files: dict[tuple[str, int], TextIO] = {}
        """Open files, by folder and process."""
        self._start = clock()
        self._broken: set[str] = set()

    def write(self, folder: str, body: Body) -> bool:
        """Append an event; return whether it is the first one of this process in ``folder``.

        A folder that cannot be written is reported once, and the program goes on.
        """
        if folder in self._broken:
            return False
        with self._lock:
            is_first = (folder, os.getpid()) not in self._files
            try:
                file = self._opened(folder)
                file.write(self._line(body))
                file.flush()  # a crash must leave what came before
            except OSError as error:
                self._broken.add(folder)
                warn_user(f"fxstack: no trace can be written into {folder!r}: {error}.", UserWarning)
                return False
        return is_first

    def _opened(self, folder: str) -> TextIO:
        """Return the open trace of this process in ``folder``. A new one begins with a description of the process."""
        key = folder, os.getpid()
        if key not in self._files:
            Path(folder).mkdir(parents=True, exist_ok=True)
            file = (Path(folder) / f"trace-{os.getpid()}.jsonl").open("a", encoding="utf-8")
            file.write(self._line(describe_process()))
            self._files[key] = file
        return self._files[key]

    def _line(self, body: Body) -> str:
        return to_line(Event(self._clock() - self._start, threading.current_thread().name, body))

    @property
    def seconds(self) -> float:
        """Return the seconds since the writer was made. Each event gets them as its time."""
        return self._clock() - self._start
