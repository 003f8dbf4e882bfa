"""The GPU script in its dry mode: every section runs on CPU, and the table reports what was found."""

import subprocess
import sys
from pathlib import Path

import gpu
import gpu_measure
import gpu_opdb
import pytest

pytest.importorskip("triton")
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


LAST_LINES = {
    "environment": "environment: ",
    "kernels": "kernels: ",
    "products": "products: ",
    "launch": "launch: ",
    "opdb": "opdb: total: samples 3, wrong 0",
    "models": "x torch.compile over 2 cases",
}
"""For each section a text that it prints."""


@pytest.mark.parametrize("section", LAST_LINES)
def test_a_section_reports_and_nothing_in_it_is_wrong(tmp_path, section):
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--dry", "--minutes", "60", "--sections", section]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert LAST_LINES[section] in printed
    bad = ("failed", "skipped", "stopped", "status", "wrong:")
    assert not [line for line in printed.splitlines() if any(word in line for word in bad)]


def test_a_system_that_fails_costs_the_others_nothing():
    def fail():
        raise RuntimeError("no kernel  image")

    assert gpu.apart("one", fail) == {"one failed": "RuntimeError: no kernel image"}
    assert gpu.apart("two", lambda: {"two ms": 2.0}) | gpu.ratio("of", 4.0, 2.0) == {"two ms": 2.0, "of": 2.0}
    assert gpu.ratio("of", 4.0, None) == {}
    assert gpu._compared({"other result": 1, "other ms": 2}) == {"other ms": 2}


@pytest.fixture
def machine(tmp_path):
    return gpu_measure.Machine(True, tmp_path, 60.0)


def test_another_process_goes_on_behind_the_case_in_which_one_died(machine):
    def die():
        raise KeyboardInterrupt

    first = gpu_measure.Report.start("kernels", machine)
    first.attempt("copy", lambda: {"ms": 1.0}, 0)
    with pytest.raises(KeyboardInterrupt):
        first.attempt("softmax", die, 0)
    second = gpu_measure.Report.start("kernels", machine)
    for name in ("copy", "softmax", "argmax"):
        second.attempt(name, lambda: {"ms": 2.0}, 0)
    assert gpu_measure.Report.start("kernels", machine).rows == [
        {"case": "copy", "ms": 1.0},
        {"case": "softmax", "failed": "the process ended"},
        {"case": "argmax", "ms": 2.0},
    ]


def test_what_systems_gave_stays_where_the_process_ends_in_a_later_one(machine):
    def measure(name, compiler):
        written.append(gpu_measure.Report.start("models", machine).rows)
        return {f"{name} ms": compiler, f"{name} result": object()}

    written = []
    found = gpu.each(gpu_measure.Report.start("models", machine), "mlp", {"eager": 3.0, "ours": 2.0}, measure)
    assert list(found) == ["eager ms", "eager result", "ours ms", "ours result"]
    assert written == [
        [{"case": "mlp", "failed": "the process ended in eager"}],
        [{"case": "mlp", "eager ms": 3.0, "failed": "the process ended in ours"}],
    ]


@pytest.mark.parametrize(
    ("statuses", "left"),
    [([""], None), (["status 3", "status -11", ""], "status 3, status -11"), ([gpu.STOPPED], gpu.STOPPED)],
)
def test_a_section_is_started_again_until_it_ends(monkeypatch, tmp_path, statuses, left):
    ends = iter(statuses)
    monkeypatch.setattr(gpu, "_section_process", lambda *_, **__: next(ends))
    gpu.start_section("kernels", tmp_path, 60.0, dry=True)
    failed = tmp_path / "kernels.failed"
    assert list(ends) == []
    assert (failed.read_text() if failed.exists() else None) == left


DIES = """
import json, os, sys
log, skip = (sys.argv[sys.argv.index(name) + 1] for name in ("--log", "--skip"))
result = {"name": "add", "dtype": "int8", "problem": "differs", "seen": 4, "wrong": 1}
lines = {
    "0": [{"position": 0, "case": "add int8"}, {"position": 0, "result": result}, {"position": 1, "case": "sub int8"}],
    "2": [{"position": 2, "case": "mul int8"}, {"position": 2, "result": None}, {"done": True}],
}[skip]
open(log, "w").write("\\n".join(map(json.dumps, lines)))
os.abort() if skip == "0" else None
"""


def test_the_database_goes_on_behind_the_operator_in_which_a_process_died(machine, monkeypatch, tmp_path):
    script = tmp_path / "dies.py"
    script.write_text(DIES)
    monkeypatch.setattr(gpu_opdb, "SCRIPT", script)
    assert list(gpu_opdb.sweep(machine, 60.0)) == [
        {"case": "add int8", "failed": "differs"},
        {"case": "sub int8", "failed": "the process ended"},
        {"case": "total", "samples": 4, "wrong": 1, "operators and dtypes": 1, "processes": 1},
    ]


def test_the_extension_is_built_by_a_setuptools_that_cannot_read_the_project(tmp_path):
    capture, package = gpu.ROOT / "packages" / "capture", tmp_path / "capture"
    package.mkdir()
    (package / "src").symlink_to(capture / "src")
    (package / "setup.py").symlink_to(capture / "setup.py")
    (package / "pyproject.toml").write_text("what this setuptools does not know")
    assert gpu.compile_extension(package, tmp_path / "built") == ""
    assert list((tmp_path / "built" / "fxstack_capture").glob("_native.*.so"))


def test_the_end_of_a_models_process_is_told():
    ended = [gpu._ended_in_time([sys.executable, "-c", code], 5) for code in ("", "exit(3)")]
    assert ended == ["", "status 3"]
    hangs = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert gpu._ended_in_time(hangs, 0.2) == gpu.STOPPED
