"""The GPU script in its dry mode: every section runs on CPU, and the table reports what was found."""

import subprocess
import sys
from pathlib import Path

import gpu
import pytest

pytest.importorskip("triton")
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), "--dry", "--minutes", "60"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    "section", ["environment", "kernels", "products", "launch", "opdb", "models"]
)
def test_each_section_reports(printed, section):
    assert f"\n{section}: " in f"\n{printed}"


def test_nothing_failed_or_is_wrong(printed):
    bad = ("failed", "skipped", "stopped", "status", "wrong:")
    assert not [line for line in printed.splitlines() if any(word in line for word in bad)]
    assert "opdb: total: samples 3, wrong 0" in printed


def test_the_table_ends_with_the_mean(printed):
    assert "x torch.compile over 2 cases" in printed.splitlines()[-1]


def test_a_system_that_fails_costs_the_others_nothing():
    def fail():
        raise RuntimeError("no kernel  image")

    assert gpu.apart("one", fail) == {"one failed": "RuntimeError: no kernel image"}
    assert gpu.apart("two", lambda: {"two ms": 2.0}) | gpu.ratio("of", 4.0, 2.0) == {
        "two ms": 2.0,
        "of": 2.0,
    }
    assert gpu.ratio("of", 4.0, None) == {}
    assert gpu._compared({"other result": 1, "other ms": 2}) == {"other ms": 2}
