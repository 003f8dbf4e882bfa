"""Write an artefact to each place that asks for it: stderr, a numbered file, torch's logs."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from fxstack.debug.artefacts import BY_NAME, folder, is_printed, is_printed_after, tell, torch_loggers
from fxstack_interchange.passes import PassDone
from fxstack_interchange.user_warnings import warn_user

_NUMBERS: Final = itertools.count(1)
_LOCK: Final = threading.Lock()
_UNWRITABLE: Final[set[str]] = set()


def emit(name: str, place: str, text: Callable[[], str], detail: str = "") -> Path | None:
    """Show the artefact ``name`` of the function ``place``; call ``text`` only if something asks for it.

    ``detail`` tells artefacts of one kind apart, for example ``backward``. Return the file that was written, if any.
    """
    artefact = BY_NAME[name]
    loggers, to_stderr = torch_loggers(artefact), is_printed(name)
    if not (loggers or to_stderr or folder()):
        return None
    title, body = f"{f'{name} {detail}'.rstrip()} of {place}", text().rstrip("\n")
    kind = f"{name}{f'_{detail}' if detail else ''}.{artefact.suffix}"
    file = _show(to_stderr, f"{_slug(place)}_{kind}", title, body)
    for log in loggers:
        log.debug("%s\n%s", title, body)
    return file


def show_pass(done: PassDone) -> None:
    """Show a pass: on stderr if ``FXSTACK_DEBUG`` names it, and as a file of its own in the folder."""
    place = done.subject or "a function"
    if is_printed("passes"):
        note = f", nothing to do: {done.why}" if done.why else ""
        tell(f"fxstack {done.stage}:{done.name} {done.seconds * 1e3:.2f} ms{note}  # {place}\n")
    to_stderr = is_printed_after(done.stage, done.name)
    if to_stderr or folder():
        note = f": nothing to do, {done.why}" if done.why else ""
        title = f"{done.stage} after {done.name} of {place}{note}"
        name = f"{_slug(place)}_pass_{done.stage}_{done.name}.txt"
        _show(to_stderr, name, title, done.text().rstrip("\n"))


def _show(to_stderr: bool, name: str, title: str, body: str) -> Path | None:
    """Show a text on stderr if ``to_stderr``.

    Write it into the folder of artefacts if there is a folder; return the file.
    """
    with _LOCK:  # lines of threads stay together
        if to_stderr:
            tell(f"== fxstack {title}\n{body}\n\n")
        return _write(folder(), name, title, body) if folder() else None


def _slug(place: str) -> str:
    """Return ``place`` as a part of a file name: ``step (/home/me/train.py:31)`` becomes ``step_train_31``."""
    short = re.sub(r"\S*/", "", place).replace(".py:", " ")
    return re.sub(r"\W+", "_", short).strip("_")[:80]


def _new_file(folder: Path, name: str) -> Path:
    """Make the next file that does not exist yet: other processes may write into the same folder."""
    while True:
        file = folder / f"{next(_NUMBERS):04d}_{name}"
        with suppress(FileExistsError):
            file.touch(exist_ok=False)
            return file


def _write(into: str, name: str, title: str, body: str) -> Path | None:
    """Write a file. The title stands at the end, so that line numbers equal those in ``body``."""
    comment = "//" if name.endswith(".c") else "#"
    try:
        path = Path(into).absolute()
        path.mkdir(parents=True, exist_ok=True)
        file = _new_file(path, name)
        file.write_text(f"{body}\n{comment} {title}\n", encoding="utf-8")
    except (OSError, UnicodeError) as error:
        if into not in _UNWRITABLE:
            _UNWRITABLE.add(into)
            warn_user(f"FXSTACK_DEBUG_DIR: no file can be written into {into!r}: {error}.", UserWarning)
        return None
    return file
