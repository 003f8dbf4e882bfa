"""Private names of torch: how a package's ``torch_compat`` binds them and handles missing names.

A release of torch may rename or drop any private name. Therefore ``torch_compat`` looks up each name once,
when the package is imported. For a missing name it binds an ``Absent`` class. A program can import an
``Absent``, subclass it, put it into a table and use it in ``isinstance``, which returns False. Calling an
``Absent`` raises ``MissingTorchNameError``, which names the missing name.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import torch

Names = Mapping[str, Mapping[str, str]]
"""Maps each feature to the modules or classes that hold its names.

The value is the names, separated by spaces.
"""

HIDDEN: set[str] = set()
"""Paths that ``find`` treats as missing. Tests add paths here."""


class MissingTorchNameError(RuntimeError):
    """The running torch lacks a private name that a feature needs."""


class Absent(type):
    """A class that represents a name that torch does not have. Its attributes are ``Absent`` too."""

    path: str
    """The dotted path of the missing name in torch."""
    feature: str
    """The feature of fxstack that needs the name, for the error."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name not in _READ_AT_IMPORT:
            raise AttributeError(name)
        return absent(f"{cls.path}.{name}", cls.feature)

    def __call__(cls, *_args: object, **_kwargs: object) -> Any:
        # A module body may use the name as a decorator, or for a record in a table. The result is absent too.
        if _is_importing():
            return absent(cls.path, cls.feature)
        raise cls.error()

    def __iter__(cls) -> Iterator[Any]:
        if _is_importing():
            return iter(())
        raise cls.error()

    def error(cls) -> MissingTorchNameError:
        """Return the error that a use of the missing name raises."""
        return MissingTorchNameError(
            f"torch {torch.__version__} has no {cls.path}, which fxstack needs for: {cls.feature}. "
            f"Install a torch from {FIRST} to {LAST}, which fxstack was tested with, or a newer fxstack."
        )


FIRST, LAST = "2.11", "2.15"
"""The first and the last release of torch that the tests run on."""


def warn_of_untested(version: str = torch.__version__) -> None:
    """Warn if ``version`` is newer than the last tested release. fxstack still runs with such a release."""
    release = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if release > tuple(map(int, LAST.split("."))):
        warnings.warn(
            f"fxstack was tested with torch {FIRST} to {LAST}, but torch {version} is installed. Changes in torch may"
            " cause graph breaks or errors. fix: install a newer fxstack, or a tested torch.",
            stacklevel=2,
        )


_READ_AT_IMPORT = frozenset({"__code__", "__enter__", "__exit__", "__func__", "__get__"})


def absent(path: str, feature: str) -> Any:
    """Return the stand-in for the name at ``path``, which torch lacks. ``feature``: what needs it, for the error."""
    return Absent(path.rpartition(".")[2], (), {"path": path, "feature": feature, "__doc__": None})


def _is_importing() -> bool:
    """Whether a module of fxstack is being imported further up the stack.

    A missing name must not abort the import.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return str(frame.f_globals.get("__name__")).startswith("fxstack")
        frame = frame.f_back
    return False


def bind(namespace: dict[str, Any], names: Names) -> None:
    """Bind each of ``names`` in ``namespace``, without leading underscores, or as ``alias`` for an entry ``name=alias``."""
    for path, alias, feature in entries(names):
        value = find(path)
        namespace[alias] = absent(path, feature) if value is _NOTHING else value


def entries(names: Names) -> Iterator[tuple[str, str, str]]:
    """Yield for each name its path in torch, its alias in fxstack, and the feature that needs the name."""
    for feature, holders in names.items():
        for holder, listed in holders.items():
            for entry in listed.split():
                name, _, alias = entry.partition("=")
                yield f"{holder}.{name}", alias or name.lstrip("_"), feature


_NOTHING = object()


def find(path: str) -> Any:
    """Return the object at ``path``, or ``_NOTHING`` if torch lacks it or ``HIDDEN`` has it.

    Imports the modules on the path if necessary.
    """
    if path in HIDDEN:
        return _NOTHING
    *holders, last = path.split(".")
    value: Any = torch
    for end in range(2, len(holders) + 1):
        value = _module(value, ".".join(holders[:end])) or getattr(value, holders[end - 1], _NOTHING)
    attribute = getattr(value, last, _NOTHING)
    return (_module(value, path) or _NOTHING) if attribute is _NOTHING else attribute


def _module(package: object, path: str) -> Any:
    """Return the module at ``path`` below a package; None if there is none.

    A module takes precedence over an attribute of the same name (``invoke_subgraph``).
    """
    if not hasattr(package, "__path__"):
        return None
    try:
        return importlib.import_module(path)
    except ImportError:
        return None
