"""The pytest plugin of the test sessions (``testing/gate``), on small test files in processes of their own."""

import os
import re
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest

pytest.importorskip("xdist")

TESTING = Path(__file__).parents[2] / "testing"
sys.path.insert(0, str(TESTING))

from gate.selection import is_due  # noqa: E402

BUSY = "end = time.process_time() + {}\n    while time.process_time() < end:\n        pass"


def gate(folder, source, *options, slow=()):
    """Run the tests of ``source``, as those of ``stage/tests/test_it.py``, with the plugin; ``slow`` is the list."""
    tests = folder / "stage" / "tests"
    tests.mkdir(parents=True)
    (tests / "test_it.py").write_text(f"import os, time, threading, pathlib, pytest\n{source}")
    (folder / "conftest.py").write_text(
        f"import gate.selection\ngate.selection.LIST = __import__('pathlib').Path({str(folder / 'slow.txt')!r})\n"
    )
    (folder / "slow.txt").write_text("".join(f"stage/test_it.py::{name}\n" for name in slow))
    (folder / "pytest.ini").write_text(
        "[pytest]\n"
    )  # not the settings of the repository, which may lie above
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(TESTING), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "gate", *options, str(tests)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def passed(run):
    found = re.search(r"(\d+) passed", run.stdout)
    return int(found[1]) if found else 0


CASES = "@pytest.mark.parametrize('n', range(40))\ndef test_slow(n): pass\ndef test_quick(): pass\n"


def test_all_tests_run_unless_some_are_left_out(tmp_path):
    assert passed(gate(tmp_path, CASES, slow=["test_slow"])) == 41


def test_without_slow_tests(tmp_path):
    assert passed(gate(tmp_path, CASES, "--slow=none", slow=["test_slow"])) == 1


def test_slow_tests_that_are_kept(tmp_path):
    assert passed(gate(tmp_path, CASES, "--slow=none", "--keep=test_it", slow=["test_slow"])) == 41


def test_each_slow_case_runs_once_in_twelve_days():
    days = [(date(2026, 11, 28) + timedelta(n)).toordinal() for n in range(12)]
    counts = [[is_due(f"stage/test_it.py::test[{n}]", day) for day in days].count(True) for n in range(200)]
    assert counts == [1] * 200


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_rotation_runs_the_cases_of_the_day(tmp_path, workers):
    run = gate(
        tmp_path, CASES, "--slow=rotation", "--date=2026-11-28", "-n", workers, "-v", slow=["test_slow"]
    )
    day = date(2026, 11, 28).toordinal()
    due = {f"test_slow[{n}]" for n in range(40) if is_due(f"stage/test_it.py::test_slow[{n}]", day)}
    assert set(re.findall(r"::(test_\S+)", run.stdout)) == due | {"test_quick"}


LONG = f"def test_long():\n    {BUSY.format(0.6)}\n"


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_long_test_that_is_not_listed_fails_the_run(tmp_path, workers):
    run = gate(tmp_path, LONG, "--cpu-limit=0.3", "-n", workers)
    assert run.returncode == 1, run.stdout
    assert re.search(
        r"SLOW stage/test_it.py::test_long: 0\.\d+ s of processor time, over the limit of 0\.3 s", run.stdout
    )


def test_a_long_test_that_is_listed_passes(tmp_path):
    assert gate(tmp_path, LONG, "--cpu-limit=0.3", slow=["test_long"]).returncode == 0


def test_waiting_and_the_first_import_do_not_count(tmp_path):
    wait = "def test_wait(): time.sleep(0.5)\n"
    once = f"DONE = []\ndef test_once():\n    if DONE: return\n    DONE.append(1)\n    {BUSY.format(0.6)}\n"
    assert gate(tmp_path, wait + once, "--cpu-limit=0.3").returncode == 0


SHARED = f"""
@pytest.fixture(scope="module")
def model():
    {BUSY.format(0.6)}
def test_first(model): pass
def test_second(model): pass
def test_other(): pass
"""


def test_a_fixture_that_tests_share_counts_for_none_of_them(tmp_path):
    run = gate(tmp_path, SHARED, "--cpu-limit=0.3", f"--costs={tmp_path}/costs.txt")
    assert run.returncode == 0, run.stdout
    first, *others = (tmp_path / "costs.txt").read_text().splitlines()
    assert re.fullmatch(r"0\.[5-9]\d \d\.\d\d stage/test_it.py::model", first)
    assert all(line.startswith("0.0") for line in others)


@pytest.mark.parametrize(("slow", "status"), [((), 1), (("model",), 0)])
def test_a_shared_fixture_of_four_times_the_limit_is_listed(tmp_path, slow, status):
    run = gate(tmp_path, SHARED, "--cpu-limit=0.1", slow=slow)
    assert run.returncode == status, run.stdout
    assert ("SLOW stage/test_it.py::model: 0." in run.stdout) == bool(status)


def test_the_tests_of_a_slow_fixture_run_on_one_day(tmp_path):
    days = [date(2026, 11, 20) + timedelta(n) for n in range(12)]
    (due,) = (day for day in days if is_due("stage/test_it.py::model", day.toordinal()))
    for name, day, count in (("due", due, 3), ("after", due + timedelta(1), 1)):
        run = gate(tmp_path / name, SHARED, "--slow=rotation", f"--date={day}", slow=["model"])
        assert passed(run) == count


def test_costs_are_written(tmp_path):
    gate(tmp_path, LONG + "def test_short(): pass\n", f"--costs={tmp_path}/build/costs.txt", "-n", "2")
    first, second = (tmp_path / "build/costs.txt").read_text().splitlines()
    assert re.fullmatch(r"0\.[5-9]\d \d\.\d\d stage/test_it.py::test_long", first)
    assert re.fullmatch(r"0\.\d\d 0\.\d\d stage/test_it.py::test_short", second)


def test_what_the_list_names_exists():
    """A line for a function that is gone does nothing, and a list that is lost makes each run an hour longer."""
    repository = TESTING.parent
    lines = (TESTING / "gate" / "slow.txt").read_text().splitlines()
    folders = {"integration": repository / "integration" / "tests"}
    for line in lines:
        file, *_, function = line.split("::")
        stage, _, path = file.partition("/")
        source = folders.setdefault(stage, repository / "packages" / stage / "tests") / path
        assert re.search(rf"\b{function}\b", source.read_text()), line
    assert lines == sorted(set(lines))
    assert len(lines) > 100


def test_a_test_that_is_alone_overlaps_no_other(tmp_path):
    source = f"""
FILE = pathlib.Path({str(tmp_path / "running")!r})
def run(n):
    FILE.with_suffix(f".{{n}}").touch()
    time.sleep(0.02)
    others = len(list(FILE.parent.glob("running.*"))) - 1
    FILE.with_suffix(f".{{n}}").unlink()
    return others
@pytest.mark.parametrize("n", range(20))
def test_beside(n): run(n)
@pytest.mark.alone
@pytest.mark.parametrize("n", range(20, 30))
def test_alone(n): assert run(n) == 0
"""
    assert passed(gate(tmp_path, source, "-n", "3")) == 30


def test_workers_have_their_own_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("FXSTACK_TEST_CACHES", str(tmp_path))
    source = "def test_it(): assert os.environ['XDG_CACHE_HOME'].endswith('/gw0/cache')\n"
    assert passed(gate(tmp_path, source, "-n", "1")) == 1


def test_an_expensive_case_of_a_shared_fixture_is_seen(tmp_path):
    source = f"""
@pytest.fixture(scope="module", params=[0.01, 0.6])
def model(request):
    {BUSY.format("request.param")}
def test_it(model): pass
"""
    run = gate(tmp_path, source, "--cpu-limit=0.1")
    assert run.returncode == 1 and "SLOW stage/test_it.py::model: 0." in run.stdout


def test_a_second_run_that_fails_at_once_saves_nothing(tmp_path):
    source = f"DONE = []\ndef test_it():\n    assert not DONE\n    DONE.append(1)\n    {BUSY.format(0.6)}\n"
    run = gate(tmp_path, source, "--cpu-limit=0.3")
    assert run.returncode == 1 and "SLOW stage/test_it.py::test_it: 0." in run.stdout


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_crash_after_the_last_test_fails_the_run(tmp_path, workers):
    source = (
        "import atexit\n@pytest.mark.parametrize('n', [1, 2])\ndef test_it(n): atexit.register(os.abort)\n"
    )
    assert gate(tmp_path, source, "-n", workers).returncode != 0
