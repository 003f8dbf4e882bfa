"""Measure what each test costs, and fail a run in which a test that is not listed as slow costs more than a limit.

``--costs=FILE`` writes one line a test, the most expensive first: processor seconds, wall-clock seconds, the case.
``--cpu-limit=SECONDS`` fails the run for a case above the limit whose function ``slow.txt`` does not list.

The limit counts processor time of the test's process and of its finished children, so that other work on the
machine does not change the outcome. The first test that needs an expensive import or a C compiler pays for it: a
case above the limit runs a second time, for its cost alone, and the smaller cost counts. A fixture that several
tests share (of a module, a class or a session) has a line of its own, and does not count for the test that was first;
its limit is four times as high.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from gate.selection import case_of, slow_names, slow_part

MOST_ONCE = 6
"""A test that costs more than this many times the limit does not owe it to imports: it does not run again."""
MOST_SHARED = 4
"""A shared fixture may cost this many times the limit: several tests use it, and it cannot run a second time."""


class Cost(NamedTuple):
    """Processor and wall-clock seconds of a test with its fixtures."""

    cpu: float
    wall: float

    def without(self, other: Cost) -> Cost:
        return Cost(round(max(0.0, self.cpu - other.cpu), 2), round(max(0.0, self.wall - other.wall), 2))


def now() -> Cost:
    times = os.times()
    return Cost(sum(times[:4]), time.monotonic())


def since(begin: Cost) -> Cost:
    return now().without(begin)


class Costs:
    """Costs by case. A worker of pytest-xdist sends its costs to the first process when it ends."""

    def __init__(self, config: pytest.Config) -> None:
        self.limit: float | None = config.option.cpu_limit
        self.file: Path | None = config.option.costs
        self.slow = slow_names()
        self.by_case: dict[str, Cost] = {}
        self.listed: set[str] = set()
        self.fixtures: set[str] = set()
        self.shared = Cost(0, 0)  # of the shared fixtures that the running test is the first to use

    def is_over(self, case: str) -> bool:
        if self.limit is None or case in self.listed:
            return False
        return self.by_case[case].cpu > self.limit * (MOST_SHARED if case in self.fixtures else 1)

    def over(self) -> list[str]:
        return sorted(case for case in self.by_case if self.is_over(case))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        case = case_of(item.nodeid)
        if slow_part(item, self.slow):
            self.listed.add(case)
        begin, self.shared = now(), Cost(0, 0)
        result = yield
        self.by_case[case] = since(begin).without(self.shared)
        if self.is_over(case) and self.by_case[case].cpu < MOST_ONCE * self.limit:
            begin, self.shared = now(), Cost(0, 0)
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            # A test that fails the second time may have ended early: state of its module is not as it was.
            if all(part.passed for part in reports):
                self.by_case[case] = min(self.by_case[case], since(begin).without(self.shared))
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> Iterator[Any]:
        if fixturedef.scope == "function":
            return (yield)
        begin, inner, self.shared = now(), self.shared, Cost(0, 0)
        result = yield
        cost = since(begin)
        file = case_of(request._pyfuncitem.nodeid).partition("::")[0]
        fixture = f"{file}::{fixturedef.argname}"
        self.by_case[fixture] = max(self.by_case.get(fixture, Cost(0, 0)), cost.without(self.shared))
        self.fixtures.add(fixture)
        if fixture in self.slow:
            self.listed.add(fixture)
        self.shared = Cost(inner.cpu + cost.cpu, inner.wall + cost.wall)
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        for case, cost in output.get("costs", {}).items():
            self.by_case[case] = max(self.by_case.get(case, Cost(0, 0)), Cost(*cost))
        self.listed.update(output.get("listed", ()))
        self.fixtures.update(output.get("fixtures", ()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["costs"] = {case: tuple(cost) for case, cost in self.by_case.items()}
            output["listed"], output["fixtures"] = sorted(self.listed), sorted(self.fixtures)
            return
        if self.file is not None:
            write(self.file, self.by_case)
        if self.over() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for case in self.over():
            terminalreporter.write_line(
                f"SLOW {case}: {self.by_case[case].cpu} s of processor time, over the limit of {self.limit} s for a "
                f"test, {MOST_SHARED * self.limit} s for a shared fixture. Make it faster, or list its function in "
                "testing/gate/slow.txt."
            )


def write(file: Path, costs: dict[str, Cost]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(costs.items(), key=lambda pair: (-max(pair[1]), pair[0]))
    file.write_text("".join(f"{cost.cpu:.2f} {cost.wall:.2f} {case}\n" for case, cost in ordered))


def read(file: Path) -> Iterator[tuple[str, Cost]]:
    """The lines of a file that ``write`` has written."""
    for line in file.read_text().splitlines():
        cpu, wall, case = line.split(" ", 2)
        yield case, Cost(float(cpu), float(wall))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gate")
    group.addoption("--costs", type=Path, help="the file for what each test costs")
    group.addoption("--cpu-limit", type=float, help="processor seconds of a test that is not listed as slow")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(config), "costs")
