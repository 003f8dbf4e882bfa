# ruff: noqa: E501
"""Helpers for tests of the frame hook. They need neither torch nor the rest of the package."""

import sys
import types
from pathlib import Path

import pytest

try:
    import fxstack_capture  # noqa: F401
except (
    ImportError
):  # a Python without torch: the package's own __init__ cannot be imported, the native part can
    package = types.ModuleType("fxstack_capture")
    package.__path__ = [str(Path(__file__).parents[2] / "src" / "fxstack_capture")]
    sys.modules["fxstack_capture"] = package

from fxstack_capture import native  # noqa: E402

if not native.AVAILABLE:
    collect_ignore_glob = ["test_*.py"]


class Replacer:
    """Compile mode with a fixed table: original function -> replacement function. Counts what it was
    asked."""

    def __init__(self):
        self.owner = native.Owner()
        self.table = {}
        self.asked = []

    def callback(self, func, code, local_values, cells):
        self.asked.append((code.co_name, dict(local_values), cells))
        replacement = self.table.get(code)
        if replacement is None:
            return native.SKIP
        return replacement(func, code, local_values, cells)

    def replace(self, old, new):
        """Calls of ``old`` run the code of ``new``."""
        return self.answer(old, lambda *_: native.Entry(self.owner, None, new.__code__))

    def answer(self, old, callback):
        """The first call of ``old`` asks ``callback``."""
        self.table[old.__code__] = callback
        return self

    def __call__(self, fn, *args, **kwargs):
        return native.run_with(self.callback, self.owner, fn, args, kwargs)

    def plainly(self, fn, *args, **kwargs):
        """The same call, as deep in the stack, without compile mode."""
        return fn(*args, **kwargs)

    def names_asked(self):
        return [name for name, _locals, _cells in self.asked]


@pytest.fixture
def replacer():
    return Replacer()


@pytest.fixture(autouse=True)
def _hook_is_off_afterwards():
    yield
    assert native.mode() == "off"
    assert native.stats()["active"] == 0
