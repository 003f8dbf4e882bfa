"""Show compilations as text: on stderr, in a folder, in torch's logs, as a closing table and as a report.

Begin reading in ``artefacts`` (what there is to see), then ``listener`` (events of compilations to text) and
``output`` (where the text goes). May import ``fxstack.log`` and the stages; the pipeline imports nothing of this folder.
"""

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from fxstack.log import AT_FIRST

_FINISH: Final[list[Callable[[], None]]] = []
"""Functions that the end of the process calls: empty until the first compilation."""


def follow() -> None:
    """Follow all compilations from the first on. Warn now if the environment names unknown artefacts or passes.

    Folders become absolute, because the program and its child processes may change directories.
    """
    AT_FIRST.append(_start)
    with suppress(FileNotFoundError):  # the working directory is gone
        for name in {"FXSTACK_DEBUG_DIR", "FXSTACK_REPORT", "FXSTACK_TRACE"} & os.environ.keys():
            os.environ[name] = os.environ[name] and str(Path(os.environ[name]).absolute())
    atexit.register(_finish)
    if {"FXSTACK_DEBUG", "FXSTACK_STOP_AFTER"} & os.environ.keys():
        from fxstack.debug.artefacts import check_names  # noqa: PLC0415 - slow, and most programs do not need it

        check_names()


def _start() -> None:
    """Start what the environment asks for, at the first compilation of the process."""
    from fxstack.debug.start import start  # noqa: PLC0415 - an import of fxstack alone does not need it

    _FINISH.append(start())


def _finish() -> None:
    """Print the summary and write the report, even if nothing was compiled."""
    if not _FINISH and {"FXSTACK_DEBUG", "FXSTACK_REPORT", "FXSTACK_TRACE"} & os.environ.keys():
        _start()
    for finish in _FINISH:
        finish()
