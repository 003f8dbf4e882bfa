"""Change a module when it is imported, without importing it; install fxstack as soon as torch is imported.

``fxstack.pth`` calls ``start`` when Python starts, if ``FXSTACK`` is in the environment and not 0. This module
imports neither torch nor fxstack: a finder at the head of ``sys.meta_path`` waits for the modules that are to be changed.
Where nobody imports one, nothing happens.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Change = Callable[[ModuleType], None]

ON = ("1", "true", "yes", "on")
OFF = ("0", "false", "no", "off", "")
"""The values of the variable ``FXSTACK``, in any case of letters."""


class AfterImport(MetaPathFinder):
    """Calls a function with each of some modules as soon as the module has been executed."""

    def __init__(self, changes: dict[str, Change]) -> None:
        self._changes = changes
        self._finding: set[str] = set()

    def start(self) -> None:
        """Change the modules that are loaded already, and wait for the others."""
        for name, change in self._changes.items():
            module = sys.modules.get(name)
            if module is not None:
                change(module)
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Find the module by the other finders; its loader calls the function of the module in addition."""
        if fullname not in self._changes or fullname in self._finding:
            return None
        self._finding.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._finding.discard(fullname)
        if spec is not None and spec.loader is not None:
            _extend(spec.loader, self._changes[fullname])
        return spec


def _extend(loader: Any, change: Change) -> None:
    """Make ``loader`` call ``change`` with the module after it has executed the module."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module  # a reload executes the module alone
        execute(module)
        change(module)

    loader.exec_module = exec_module


def start() -> None:
    """Install fxstack when the program imports torch, or at once if torch is imported.

    Do nothing if ``FXSTACK`` has a value of ``OFF``. Warn when torch is imported if the value is in neither list.
    With a value of ``ON`` in ``FXSTACK_VERBOSE``, write a line that says so when fxstack is installed.
    """
    value = os.environ.get("FXSTACK", "").strip().lower()
    if not _STARTED and value not in OFF:
        _STARTED.append(AfterImport({"torch": _install if value in ON else _warn}))
        _STARTED[0].start()


_STARTED: list[AfterImport] = []


def _warn(_torch: ModuleType) -> None:
    _STARTED[0].stop()
    import warnings  # noqa: PLC0415 - each start of Python would pay for it

    warnings.warn(
        f"the environment variable FXSTACK is {os.environ['FXSTACK']!r}, which is no known value: torch.compile stays "
        f"torch's own. Set {', '.join(ON)} to run it on fxstack, or {', '.join(OFF[:-1])} for torch's own.",
        stacklevel=1,
    )


_OURS = (
    "fxstack",
    "fxstack_capture",
    "fxstack_functionalize",
    "fxstack_inductor",
    "fxstack_interchange",
    "fxstack_partition",
)
_WAITING: list[ModuleType] = []
"""torch, if a package of ``_OURS`` has imported it: fxstack is installed when the import of the package has ended."""


def _install(torch: ModuleType) -> None:
    """Install fxstack now, or when the import of a package of fxstack that imported torch has ended."""
    _STARTED[0].stop()
    if _is_being_imported():
        _WAITING.append(torch)
        sys.meta_path.insert(0, _AfterOurs())
    else:
        _finish(torch)


def _is_being_imported() -> bool:
    modules = (sys.modules.get(name) for name in _OURS)
    return any(getattr(getattr(m, "__spec__", None), "_initializing", False) for m in modules)


class _AfterOurs(MetaPathFinder):
    """Installs fxstack at the first import after the package of fxstack that imported torch is fully imported."""

    def find_spec(self, *_arguments: object) -> None:
        if not _is_being_imported():
            sys.meta_path.remove(self)
            installed()


def installed() -> None:
    """Install fxstack if torch waits for it. ``fxstack`` calls this when it can be installed."""
    while _WAITING:
        _finish(_WAITING.pop())


def _finish(torch: ModuleType) -> None:
    import fxstack  # noqa: PLC0415 - it imports torch

    fxstack.install()
    if os.environ.get("FXSTACK_VERBOSE", "").strip().lower() in ON:
        where = os.path.dirname(fxstack.__file__)  # noqa: PTH120 - pathlib may not be imported yet
        sys.stderr.write(f"fxstack: torch.compile of torch {torch.__version__} runs on fxstack ({where})\n")
