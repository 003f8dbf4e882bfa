"""Keeps what HiGHS prints away from the program's standard output.

HiGHS has print statements that no option turns off. They are C's, so the file descriptor is what has to be replaced; what
other threads write meanwhile is passed on.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_STDOUT = 1
_OURS = b"Highs"
"""How each of HiGHS's lines begins."""


@contextmanager
def highs_silenced() -> Iterator[None]:
    """Drop HiGHS's lines from standard output while the block runs, also where that is a closed descriptor."""
    try:
        kept = os.dup(_STDOUT)
    except OSError:  # nothing is open there, so nothing can be printed
        yield
        return
    with tempfile.TemporaryFile() as caught:
        _flush()
        os.dup2(caught.fileno(), _STDOUT)
        try:
            yield
        finally:
            _flush()
            os.dup2(kept, _STDOUT)
            os.close(kept)
            caught.seek(0)
            for line in caught:
                if not line.startswith(_OURS):
                    os.write(_STDOUT, line)


def _flush() -> None:
    """Write out what C and Python hold back, so that each text goes where it was meant to."""
    if sys.stdout is not None:
        sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
