"""Functions of the standard library that the program has replaced, where a backend has failed: it may have called one of them.

Tests put functions of their own in place of ``os.path.join`` or ``subprocess.run``. A backend needs many such functions, so
frames run in plain Python for as long as those are there that were found when it failed.
"""

from __future__ import annotations

import sys
import sysconfig
import warnings
from types import FunctionType
from typing import TYPE_CHECKING, Any

from fxstack_capture.driver.errors import TracingWarning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fxstack_capture.driver.errors import BackendError

# Libraries that replace functions do so for good, and compilers work with them.
_LIBRARIES = (
    "<",
    *(sysconfig.get_path(name) + "/" for name in ("stdlib", "purelib", "platlib")),
)
_MOCKS = "unittest.mock"


def _is_foreign(value: Any) -> bool:
    """Whether a function, or a mock, is one of the program's."""
    if type(value) is FunctionType:
        return not value.__code__.co_filename.startswith(_LIBRARIES)
    return type(value).__module__ == _MOCKS


def _replaced_in(place: str, namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    for name, value in list(namespace.items()):
        if _is_foreign(value):
            yield f"{place}.{name}", namespace, name
        elif type(value) is type and value.__module__ == place:
            yield from _replaced_in(f"{place}.{name}", value.__dict__)


class ReplacedFunctions:
    """Those that were in place when a backend failed last."""

    def __init__(self) -> None:
        self._found: list[tuple[Mapping[str, Any], str, Any]] = []

    def are_there(self) -> bool:
        """Whether one of them still is."""
        self._found = [entry for entry in self._found if entry[0].get(entry[1]) is entry[2]]
        return bool(self._found)

    def explain(self, error: BackendError) -> bool:
        """Look for them after ``error``; whether there are any, which is said in a warning."""
        found = [
            entry
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] in sys.stdlib_module_names and name != _MOCKS
            for entry in _replaced_in(name, getattr(module, "__dict__", {}))
        ]
        self._found = [(namespace, name, namespace[name]) for _, namespace, name in found]
        if found:
            warnings.warn(
                f"nothing is compiled while the program replaces {', '.join(sorted({where for where, *_ in found}))}: {error}",
                TracingWarning,
                stacklevel=2,
            )
        return bool(found)
