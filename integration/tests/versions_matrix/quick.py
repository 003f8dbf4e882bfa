"""A pytest plugin that runs the quick tests alone: ``-p quick``. What takes longer is listed in ``slow.txt``.

The list is what ``pytest --durations=0`` gave at 0.8 seconds and more, by test function; ``record.py`` writes it.
"""

from pathlib import Path

import pytest

SLOW = frozenset(Path(__file__).with_name("slow.txt").read_text().split())
ALWAYS = ("test_models.py", "cpython_suite/")
"""Whole models and CPython's own tests, however long they take."""


def function_of(nodeid):
    return nodeid.partition("[")[0].rpartition("/tests/")[2]


def is_slow(item):
    nodeid = item.nodeid.replace("\\", "/")
    if any(part in nodeid for part in ALWAYS):
        return False
    package = Path(item.fspath).parts
    package = package[package.index("tests") - 1]
    return f"{package}/{function_of('/tests/' + nodeid.rpartition('/tests/')[2])}" in SLOW


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    slow = [item for item in items if is_slow(item)]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not is_slow(item)]
