"""The saved file of choices: the fastest alternatives measured for one kind of device, driver and compiler.

A saved choice is never measured again, so a program runs the same kernels every time. Delete the file (or an
entry) to measure again. The file is JSON, one entry per kernel, with the time of each alternative, for people
to read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fxstack_inductor.runtime.loader import writable, write_whole
from fxstack_inductor.tiling.kernels import KernelConfig

LIBRARY = "library"
"""The name of the library's call, an alternative to every kernel."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The fastest alternative for one kernel; ``config`` is None if the library's call is the fastest.

    ``micros``: name of an alternative -> microseconds. ``skipped``: name of an alternative without a time ->
    the reason. ``origins``: the FX nodes of the kernel, for people.
    """

    config: KernelConfig | None
    origins: str = ""
    micros: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def config_name(config: KernelConfig | None) -> str:
    """Return the name of an alternative in saved choices and in log entries; None stands for the library's call."""
    return LIBRARY if config is None else str(config)


class SavedChoices:
    """The choices in ``folder`` for ``machine``, a text that names device, driver and compiler."""

    def __init__(self, folder: Path, machine: str) -> None:
        plain = "".join(c if c.isalnum() or c in "-." else "_" for c in machine)
        self.path = folder / f"{plain}.json"

    def get(self, key: str, config_type: Callable[..., KernelConfig]) -> Choice | None:
        """Return a choice whose config has the given type; None if the file has no valid entry for ``key``."""
        entry = self._read().get(key)
        return None if entry is None else _decoded(entry, config_type)

    def put(self, key: str, choice: Choice) -> None:
        """Add a choice to the file's current contents; the last of concurrent writers wins, with a whole file."""
        entries = {**self._read(), key: asdict(choice)}
        if writable(self.path.parent):
            write_whole(self.path, json.dumps(entries, indent=1, sort_keys=True))

    def _read(self) -> dict[str, Any]:
        """Return the file's entries by key; empty if the file is missing or damaged."""
        try:
            content = json.loads(self.path.read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}


def _decoded(entry: Any, config_type: Callable[..., KernelConfig]) -> Choice | None:
    """Return an entry as a choice, or None if the entry is malformed: people and other versions may have written it."""
    try:
        config = entry["config"]
        decoded = None if config is None else config_type(**config)
        return Choice(decoded, entry["origins"], dict(entry["micros"]), dict(entry["skipped"]))
    except (KeyError, TypeError, ValueError):
        return None
