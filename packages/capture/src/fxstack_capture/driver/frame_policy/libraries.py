"""Decide whether a function belongs to a library or to the program, by how its module was found.

The directory of a file alone does not decide: libraries may be installed in place (editable) or found through
``.pth`` files. After the import, no function here calls a function of the standard library, because the
program may have replaced it.
"""

from __future__ import annotations

import os.path
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

_STANDARD = frozenset(
    path
    for place in (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    for path in (place, str(Path(place).resolve()), f"{place}/lib-dynload")
)


def _named_in(place: Path) -> Iterator[str]:
    for file in sorted(place.glob("*.pth")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            name = line.strip()
            if name and not name.startswith(("#", "import ", "import\t")):
                yield os.path.abspath(place / name)  # noqa: PTH100 - as ``site`` does


def _is_installed_into(place: Path) -> bool:
    return any(any(place.glob(pattern)) for pattern in ("*.dist-info", "*.pth"))


def _installed() -> frozenset[str]:
    paths = (sysconfig.get_path(name) for name in ("purelib", "platlib"))
    listed = (path for path in sys.path if _is_installed_into(Path(path)))
    places = {*site.getsitepackages(), site.getusersitepackages(), *paths, *listed}
    return frozenset({*places, *(line for place in places for line in _named_in(Path(place)))})


_INSTALLED = _installed()
"""The directories of installed packages, and the directories that their ``.pth`` files name."""


def _directory_of(top: str) -> str | None:
    """Return the directory in which a package or module was found, or None if it has no file."""
    file = getattr(sys.modules.get(top), "__file__", None)
    if type(file) is not str:
        return None
    place, _, name = file.rpartition("/")
    return place.rpartition("/")[0] if name.startswith("__init__.") else place


def is_standard(name: str) -> bool:
    """Whether a loaded module belongs to the standard library, and is no program file with the same name."""
    top = name.partition(".")[0]
    if top not in sys.stdlib_module_names:
        return False
    place = _directory_of(top)
    return place is None or place in _STANDARD


def is_library(function: FunctionType) -> bool:
    """Whether a function is defined in the standard library or in an installed module."""
    name = function.__globals__.get("__name__")
    if type(name) is not str or function.__code__.co_filename.startswith("<"):
        return True
    top = name.partition(".")[0]
    return is_standard(top) or _directory_of(top) in _INSTALLED or _is_redirected(top)


def _is_redirected(top: str) -> bool:
    """Whether a finder of setuptools locates the package, which is then installed in place."""
    return any(
        top in (getattr(module, "MAPPING", None) or ())
        for name, module in list(sys.modules.items())
        if name.startswith("__editable__")
    )
