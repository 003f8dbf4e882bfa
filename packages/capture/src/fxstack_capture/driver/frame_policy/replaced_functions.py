"""Functions of the standard library that the program has replaced, and that may have made a backend fail.

Tests replace functions such as ``os.path.join`` or ``subprocess.run``. A backend needs many such functions.
If a backend fails, the replaced functions are recorded, and frames run in plain Python as long as one of them
is in place. Replacements by libraries (torch and ``typing_extensions`` make some) do not count: they are
permanent, and backends work with them. Replacements from before the import of this package do not count
either, except functions of the program's main module.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

from fxstack_capture.driver.errors import BackendError, TracingWarning
from fxstack_capture.driver.frame_policy.libraries import is_library, is_standard
from fxstack_interchange.user_warnings import warn_user

# Limits: code in C is not followed. A rule that replaces Python functions of a library, other than module
# calls, guards only the code and defaults of these functions.

_MOCKS = "unittest.mock"


def _is_foreign(value: object) -> bool:
    """Whether ``value`` is a mock or a function of the program."""
    if type(value) is FunctionType:
        return not is_library(value)
    return type(value).__module__ == _MOCKS


def _replaced_in(place: str, namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    for name, value in list(namespace.items()):
        if _is_foreign(value):
            yield f"{place}.{name}", namespace, name
        elif type(value) is type and value.__module__ == place:
            yield from _replaced_in(f"{place}.{name}", value.__dict__)


def _replaced() -> Iterator[tuple[str, Any, str]]:
    for name, module in list(sys.modules.items()):
        if is_standard(name) and name != _MOCKS:
            yield from _replaced_in(name, getattr(module, "__dict__", {}))


def _is_of_main(value: object) -> bool:
    return type(value) is not FunctionType or value.__globals__.get("__name__") == "__main__"


_REPLACED_BY_OTHERS = {
    (id(namespace), name): namespace[name]
    for _, namespace, name in _replaced()
    if not _is_of_main(namespace[name])
}
"""The functions that other packages had replaced when this package was imported."""


class ReplacedFunctions:
    """The replaced functions that were in place when a backend failed last."""

    def __init__(self) -> None:
        self._in_place: list[tuple[Mapping[str, Any], str, Any]] = []

    def are_there(self) -> bool:
        """Whether one of these functions is still in place. Then the next frame runs in plain Python."""
        self._in_place = [entry for entry in self._in_place if entry[0].get(entry[1]) is entry[2]]
        return bool(self._in_place)

    def explain(self, error: BackendError) -> bool:
        """Find replaced functions after ``error``. If there are any, warn and return True."""
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
