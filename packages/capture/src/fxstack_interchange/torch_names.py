"""Private names of torch: how a package's ``torch_compat`` looks them up, and what stands for one that is gone.

A release of torch may rename or drop any of them. So each is looked up in one place, once, when the package is imported. Where
one is missing an ``Absent`` takes its place, which can be imported, subclassed, put into tables and asked whether something is
an instance of it (nothing is). What cannot be done without it raises ``MissingTorchNameError``, which names it, when somebody
calls it.
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
"""For each feature the modules or classes that have its names, with the names, separated by spaces."""

HIDDEN: set[str] = set()
"""Paths that are taken for missing: tests put names there."""


class MissingTorchNameError(RuntimeError):
    """A private name of torch that this feature needs is not there in the torch that runs."""


class Absent(type):
    """A class that stands for a name that torch does not have. Its attributes are absent, too."""

    path: str
    feature: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name not in _READ_AT_IMPORT:
            raise AttributeError(name)
        return absent(f"{cls.path}.{name}", cls.feature)

    def __call__(cls, *_args: object, **_kwargs: object) -> Any:
        if _is_importing():  # a decorator, or a record in a table: what it makes is as absent
            return absent(cls.path, cls.feature)
        raise cls.error()

    def __iter__(cls) -> Iterator[Any]:
        if _is_importing():
            return iter(())
        raise cls.error()

    def error(cls) -> MissingTorchNameError:
        return MissingTorchNameError(
            f"torch {torch.__version__} has no {cls.path}, which fxstack needs for: {cls.feature}. "
            f"Install a torch from {FIRST} to {LAST}, which fxstack was tested with, or a newer fxstack."
        )


FIRST, LAST = "2.11", "2.15"
"""The releases of torch that the tests run on."""


def warn_of_untested(version: str = torch.__version__) -> None:
    """Say once that ``version`` is newer than what was tested: it works as far as it can."""
    release = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if release > tuple(map(int, LAST.split("."))):
        warnings.warn(
            f"fxstack was tested with torch {FIRST} to {LAST}, and this is torch {version}. What has changed in torch"
            " may end graphs or fail, with an error that says so; a newer fxstack may know it.",
            stacklevel=2,
        )


_READ_AT_IMPORT = frozenset({"__code__", "__enter__", "__exit__", "__func__", "__get__"})


def absent(path: str, feature: str) -> Any:
    return Absent(path.rpartition(".")[2], (), {"path": path, "feature": feature, "__doc__": None})


def _is_importing() -> bool:
    """Whether a module of ours is being imported further up, which a missing name must not end."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return str(frame.f_globals.get("__name__")).startswith("fxstack")
        frame = frame.f_back
    return False


def bind(namespace: dict[str, Any], names: Names) -> None:
    """Put each of ``names`` into ``namespace``, without leading underscores or as ``name=alias`` says."""
    for path, alias, feature in entries(names):
        found = find(path)
        namespace[alias] = absent(path, feature) if found is _NOTHING else found


def entries(names: Names) -> Iterator[tuple[str, str, str]]:
    """Yield for each name where it is in torch, what we call it, and what it is for."""
    for feature, holders in names.items():
        for holder, listed in holders.items():
            for entry in listed.split():
                name, _, alias = entry.partition("=")
                yield f"{holder}.{name}", alias or name.lstrip("_"), feature


_NOTHING = object()


def find(path: str) -> Any:
    """Return what ``path`` leads to, importing modules on the way."""
    if path in HIDDEN:
        return _NOTHING
    *holders, last = path.split(".")
    value: Any = torch
    for end in range(2, len(holders) + 1):
        value = _module(value, ".".join(holders[:end])) or getattr(value, holders[end - 1], _NOTHING)
    found = getattr(value, last, _NOTHING)
    return (_module(value, path) or _NOTHING) if found is _NOTHING else found


def _module(package: object, path: str) -> Any:
    """A module below a package. It comes before an object of its name (``invoke_subgraph``)."""
    if not hasattr(package, "__path__"):
        return None
    try:
        return importlib.import_module(path)
    except ImportError:
        return None
