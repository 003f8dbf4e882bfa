"""Keep the output of HiGHS away from the program's standard output.

No option turns off the print statements of HiGHS. They are in C, so the file descriptor must be replaced.
Output of other threads in the meantime is passed on.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_STDOUT = 1
_OURS = b"Highs"
"""The beginning of each line of HiGHS."""


@contextmanager
def highs_silenced() -> Iterator[None]:
    """Drop HiGHS's lines from standard output while the block runs. The descriptor may be closed."""
    try:
        kept = os.dup(_STDOUT)
    except OSError:  # the descriptor is closed, so nothing can be printed
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
    """Flush the buffers of C and Python, so that each text goes to its own file."""
    if sys.stdout is not None:
        sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
