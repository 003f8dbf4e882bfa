"""Select slow tests: ``--slow=all`` (default), ``--slow=none``, ``--slow=rotation``.

``slow.txt`` lists the slow test functions, and slow fixtures that several tests share. A rotation runs a twelfth of
the cases of a function, by a hash of the case's id and the date; the tests of a shared fixture run together. Every
case runs once in twelve successive days; ``--date`` repeats the choice of a day. Cases whose path contains a part
that ``--keep`` names run always.
"""

from __future__ import annotations

import datetime as dt
import zlib
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("slow.txt")
DAYS = 12


def case_of(nodeid: str) -> str:
    """``package/folders/file.py::function[parameters]`` for the id of a test in ``package/tests``."""
    path, _, rest = nodeid.replace("\\", "/").partition("/tests/")
    return f"{path.rpartition('/')[2]}/{rest}"


def function_of(case: str) -> str:
    """The case without its parameters."""
    return case.partition("[")[0]


def fixtures_of(item: pytest.Item) -> list[str]:
    """The fixtures of the test, as ``package/folders/file.py::fixture``."""
    file = case_of(item.nodeid).partition("::")[0]
    return [f"{file}::{name}" for name in getattr(item, "fixturenames", ())]


def slow_part(item: pytest.Item, slow: frozenset[str]) -> str | None:
    """What decides the day of a slow test: its slow fixture, or the case itself; None for a quick test."""
    for fixture in fixtures_of(item):
        if fixture in slow:
            return fixture
    case = case_of(item.nodeid)
    return case if function_of(case) in slow else None


def is_due(case: str, day: int) -> bool:
    """Whether the case runs on this day (an ordinal of the proleptic Gregorian calendar)."""
    return (zlib.crc32(case.encode()) + day) % DAYS == 0


def slow_names() -> frozenset[str]:
    """The lines of the list: functions and fixtures."""
    return frozenset(LIST.read_text().split())


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gate")
    group.addoption("--slow", choices=["all", "none", "rotation"], default="all")
    group.addoption(
        "--keep", action="append", default=[], help="a part of the paths of tests that always run"
    )
    group.addoption("--date", type=dt.date.fromisoformat, help="the day of the rotation (default: today)")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Workers of pytest-xdist get the options of the first process: a run over midnight has one date.
    config.option.date = config.option.date or dt.datetime.now(tz=dt.UTC).date()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mode = config.option.slow
    if mode == "all":
        return
    slow, day = slow_names(), config.option.date.toordinal()

    def runs(item: pytest.Item) -> bool:
        part = slow_part(item, slow)
        if part is None or any(kept in case_of(item.nodeid) for kept in config.option.keep):
            return True
        return mode == "rotation" and is_due(part, day)

    left_out = [item for item in items if not runs(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if runs(item)]
