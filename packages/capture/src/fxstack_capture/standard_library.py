"""Whether a file belongs to the standard library.

Directories of installed packages are below the standard library's directory, but do not belong to it. They
may be those of this interpreter, or of other interpreters that a virtual environment exposes.
"""

from __future__ import annotations

import sysconfig
from typing import Final

_ROOTS: Final = tuple({sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib")})
"""The directories of the standard library."""
_PACKAGES: Final = (
    *(root + name for root in _ROOTS for name in ("site-packages/", "dist-packages/")),
    *(sysconfig.get_path(name) + "/" for name in ("purelib", "platlib")),
)
"""The directories of installed packages. Some are below ``_ROOTS``."""


def is_of_standard_library(file: str) -> bool:
    """Whether the file ``file`` (a path) is in the standard library. Frames of such code are not compiled."""
    return file.startswith(_ROOTS) and not file.startswith(_PACKAGES)
