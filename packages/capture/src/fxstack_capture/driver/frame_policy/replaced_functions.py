"""Functions of the standard library that the program has replaced, and that may have made a backend fail.

Tests replace functions such as ``os.path.join`` or ``subprocess.run``. A backend needs many such functions.
If a backend fails, the replaced functions are recorded. As long as one of them is in place, frames run in
plain Python.

Two kinds of replacements do not count. Replacements by libraries (torch and ``typing_extensions`` make some)
are permanent, and backends work with them. Replacements from before the import of this package are ignored,
unless a function of the program's main module is the replacement.
"""

from __future__ import annotations

import os.path
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from fxstack_capture.driver.errors import BackendError, TracingWarning
from fxstack_interchange.user_warnings import warn_user

# Limits: code in C is not followed. If a rule replaces Python functions of a library, other than module
# calls, the guards cover only the code and defaults of these functions.

_MOCKS = "unittest.mock"

# Whether a function belongs to a library or to the program depends on how its module was found. The directory
# of its file is not enough: libraries may be installed in place (editable) or found through ``.pth`` files.
# After the import, no function here calls the standard library, because the program may have replaced its
# functions.

_STANDARD = frozenset(
    path
    for place in (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    for path in (place, str(Path(place).resolve()), f"{place}/lib-dynload")
)


def _named_in(place: Path) -> Iterator[str]:
    """Yield the directories that the ``.pth`` files of the directory ``place`` add to ``sys.path``."""
    for file in sorted(place.glob("*.pth")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            name = line.strip()
            if name and not name.startswith(("#", "import ", "import\t")):
                yield os.path.abspath(place / name)  # noqa: PTH100 - as ``site`` does


def _is_installed_into(place: Path) -> bool:
    """Whether a directory of ``sys.path`` contains installed packages."""
    return any(any(place.glob(pattern)) for pattern in ("*.dist-info", "*.pth"))


def _installed() -> frozenset[str]:
    """Return the value of ``_INSTALLED``."""
    paths = (sysconfig.get_path(name) for name in ("purelib", "platlib"))
    listed = (path for path in sys.path if _is_installed_into(Path(path)))
    places = {*site.getsitepackages(), site.getusersitepackages(), *paths, *listed}
    return frozenset({*places, *(line for place in places for line in _named_in(Path(place)))})


_INSTALLED = _installed()
"""The directories of installed packages, including those that ``.pth`` files name."""


def _directory_of(top: str) -> str | None:
    """Return the directory in which a package or module was found. None if it has no file."""
    file = getattr(sys.modules.get(top), "__file__", None)
    if type(file) is not str:
        return None
    place, _, name = file.rpartition("/")
    return place.rpartition("/")[0] if name.startswith("__init__.") else place


def _is_standard(name: str) -> bool:
    """Whether a loaded module belongs to the standard library. A program file may have the same name."""
    top = name.partition(".")[0]
    if top not in sys.stdlib_module_names:
        return False
    place = _directory_of(top)
    return place is None or place in _STANDARD


def _is_library(function: FunctionType) -> bool:
    """Whether a function is defined in the standard library or in an installed module."""
    name = function.__globals__.get("__name__")
    if type(name) is not str or function.__code__.co_filename.startswith("<"):
        return True
    top = name.partition(".")[0]
    return _is_standard(top) or _directory_of(top) in _INSTALLED or _is_redirected(top)


def _is_redirected(top: str) -> bool:
    """Whether a finder of setuptools locates the package. The package is then installed in place."""
    return any(
        top in (getattr(module, "MAPPING", None) or ())
        for name, module in list(sys.modules.items())
        if name.startswith("__editable__")
    )


def _is_foreign(value: object) -> bool:
    """Whether ``value`` is a mock or a function of the program."""
    if type(value) is FunctionType:
        return not _is_library(value)
    return type(value).__module__ == _MOCKS


def _replaced_in(place: str, namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield (name, namespace, key) for each mock or program function in a module and in its classes.

    ``place`` is the dotted name of the module or class. ``namespace`` is its dictionary.
    """
    for name, value in list(namespace.items()):
        if _is_foreign(value):
            yield f"{place}.{name}", namespace, name
        elif type(value) is type and value.__module__ == place:
            yield from _replaced_in(f"{place}.{name}", value.__dict__)


def _replaced() -> Iterator[tuple[str, Any, str]]:
    """Yield (name, namespace, key) for each replaced library function. A name is for example "os.path.join"."""
    for name, module in list(sys.modules.items()):
        if _is_standard(name) and name != _MOCKS:
            yield from _replaced_in(name, getattr(module, "__dict__", {}))


def _is_of_main(value: object) -> bool:
    """Whether ``value`` is a mock, or a function of the program's main module."""
    return type(value) is not FunctionType or value.__globals__.get("__name__") == "__main__"


_REPLACED_BY_OTHERS = {
    (id(namespace), name): namespace[name]
    for _, namespace, name in _replaced()
    if not _is_of_main(namespace[name])
}
"""The functions that were already replaced when this package was imported, as (id of the namespace, key).
They do not count.
"""


class ReplacedFunctions:
    """The functions that were replaced when a backend last failed."""

    def __init__(self) -> None:
        self._in_place: list[tuple[Mapping[str, Any], str, Any]] = []

    def are_there(self) -> bool:
        """Whether one of these functions is still replaced. Frames then run in plain Python. Each frame asks
        this.
        """
        self._in_place = [entry for entry in self._in_place if entry[0].get(entry[1]) is entry[2]]
        return bool(self._in_place)

    def explain(self, error: BackendError) -> bool:
        """Find replaced functions after a backend has raised ``error``. If there are any, warn and return
        True.

        After True, ``FrameCompiler`` runs the frame in plain Python. After False, it raises the error.
        """
        replaced = [
            (where, namespace, name)
            for where, namespace, name in _replaced()
            if _REPLACED_BY_OTHERS.get((id(namespace), name), self) is not namespace[name]
        ]
        self._in_place = [(namespace, name, namespace[name]) for _, namespace, name in replaced]
        if replaced:
            warn_user(
                f"nothing is compiled while the program replaces {', '.join(sorted({where for where, *_ in replaced}))}: {error}",
                TracingWarning,
            )
        return bool(replaced)
