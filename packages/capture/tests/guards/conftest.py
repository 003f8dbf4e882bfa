"""Helpers for guard tests: does a check hold for a value, does an access find it."""

import pytest

from fxstack_capture import native
from fxstack_capture.guards.records import Guard
from fxstack_capture.guards.tree import compile_guards
from fxstack_capture.sources import Local

if not native.AVAILABLE:
    collect_ignore_glob = ["test_*.py"]


def subject(x, y=None):
    """The function whose calls the trees guard."""
    return x


class Guards:
    """``g.holds(check, x)``, ``g.tree((source, check), ...)``."""

    x = Local("x")
    y = Local("y")

    def tree(self, *pairs, fn=subject):
        return compile_guards([Guard(source, check) for source, check in pairs], fn.__code__)

    def holds(self, check, x, y=None, source=x):
        return self.tree((source, check)).failing(subject, (x, y)) == -1

    def passes(self, tree, *arguments, fn=subject):
        return tree.failing(fn, arguments) == -1


@pytest.fixture
def g():
    return Guards()
