"""The GPU script in its dry mode: every section runs on CPU, and the table reports what was found."""

import json
import subprocess
import sys
from pathlib import Path

import gpu
import gpu_measure
import gpu_models
import gpu_opdb
import gpu_sections
import gpu_table
import pytest

pytest.importorskip("triton")
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


PRINTED = {
    "environment": "cpu (dry)",
    "kernels": "kernels: mean of 14",
    "attention": "attention: causal attention",
    "products": "products: mean of 6",
    "launch": "host: launch_us",
    "dropout": "dropout: 14 cases, 0 wrong",
    "opdb": "opdb: total: samples 3, wrong 0",
    "real": "real: mlp",
    "compile": "seconds to a first step, mean of 2",
    "models": "models: float32 train, mean of 1",
}
"""For each section a text that the short table has."""


def called(folder, *options):
    """What a dry call prints."""
    command = [sys.executable, str(SCRIPT), str(folder), "--dry", "--minutes", "60", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_each_section_has_a_text():
    assert set(PRINTED) == set(gpu.SHARES)


@pytest.mark.parametrize("section", PRINTED)
def test_a_section_reports_and_nothing_in_it_is_wrong(tmp_path, section):
    printed = called(tmp_path, "--sections", section)
    assert PRINTED[section] in printed
    assert (tmp_path / f"{section}.done").exists()
    assert len(printed.splitlines()) <= gpu_table.MOST
    bad = ("failed", "skipped", "stopped", "status", "wrong:")
    lines = (tmp_path / "table.txt").read_text().splitlines()
    assert not [line for line in lines if any(word in line for word in bad)]


def test_a_further_call_goes_on_where_the_first_one_stopped(tmp_path):
    """Sections that are done, and rows of others, stay; a case for which there was no time runs."""
    rows = [{"case": "versions", "device": "known"}]
    (tmp_path / "environment.json").write_text(json.dumps({"rows": rows}))
    (tmp_path / "environment.done").touch()
    rows = [{"case": "eager", "call_us": 7.0}, {"case": "fxstack default", "skipped": "0 s left"}]
    (tmp_path / "launch.json").write_text(json.dumps({"rows": rows}))
    printed = called(tmp_path, "--sections", "environment", "launch")
    assert gpu_table.rows_of(tmp_path, "environment") == [{"case": "versions", "device": "known"}]
    found = {row["case"]: row for row in gpu_table.rows_of(tmp_path, "launch")}
    assert set(found) == {"eager", "torch.compile default", "fxstack default"}
    assert found["eager"] == {"case": "eager", "call_us": 7.0}
    assert "skipped" not in found["fxstack default"]
    assert "Left" not in printed
    gpu.forget("launch", tmp_path)
    assert not list(tmp_path.glob("launch*"))


def test_the_case_at_which_the_time_ended_runs_again(tmp_path, monkeypatch):
    rows = [{"case": "mlp", "ms": 1.0}, {"case": "vit", "failed": "the process ended in fxstack"}]
    (tmp_path / "models.json").write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr(gpu, "_section_process", lambda *_, **__: gpu.STOPPED)
    gpu.start_section("models", tmp_path, 60.0, dry=True)
    machine = gpu_measure.Machine(True, tmp_path, 60.0)
    assert gpu_measure.Report.start("models", machine).rows == rows[:1]
    assert "models (1 cases skipped)" in gpu_table.short(tmp_path, ["models"])


def figures(unit, *values):
    names = ("eager", "torch.compile default", "fxstack default")
    return {f"{name} {unit}": value for name, value in zip(names, values, strict=True)}


def test_the_short_table_has_the_worst_and_at_most_forty_lines(tmp_path):
    for section in gpu.SHARES:
        rows = [{"case": f"c{k} float{k} train", **figures("ms", 3.0, 2.0, 2.0 + k)} for k in range(60)]
        rows += [{"case": f"w{k}", "failed": "no"} for k in range(9)]
        (tmp_path / f"{section}.json").write_text(json.dumps({"rows": rows}))
    lines = gpu_table.short(tmp_path, list(gpu.SHARES)).splitlines()
    assert len(lines) == gpu_table.MOST
    assert lines[3].startswith("| kernels: c59 float59 train | 3 | 2 | 61 | 30.5 |")
    assert lines[-2] == "86 further failures"
    assert "environment" in lines[-1]
    assert len(gpu_table.full(tmp_path, list(gpu.SHARES)).splitlines()) == len(gpu.SHARES) * 69


def test_results_of_models_of_real_size_are_near_eagers():
    found = figures("loss", 2.0, 2.01, 2.5) | figures("gradients", 1.0, float("nan"), 1.0)
    wrong = {k: v for k, v in gpu_models._agreement(found).items() if k.endswith("wrong")}
    assert list(wrong) == ["fxstack default wrong", "torch.compile default wrong"]


def test_a_system_that_fails_costs_the_others_nothing():
    def fail():
        raise RuntimeError("no kernel  image")

    assert gpu_sections.apart("one", fail) == {"one failed": "RuntimeError: no kernel image"}
    assert gpu_sections.apart("two", lambda: {"two ms": 2.0}) | gpu_sections.ratio("of", 4.0, 2.0) == {
        "two ms": 2.0,
        "of": 2.0,
    }
    assert gpu_sections.ratio("of", 4.0, None) == {}
    assert gpu_models.compared({"other result": 1, "other ms": 2}) == {"other ms": 2}


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
    found = gpu_sections.each(
        gpu_measure.Report.start("models", machine), "mlp", {"eager": 3.0, "ours": 2.0}, measure
    )
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
    expected = [
        {"case": "add int8", "failed": "differs"},
        {"case": "sub int8", "failed": "the process ended"},
        {"case": "total", "samples": 4, "wrong": 1, "operators and dtypes": 1, "processes": 1},
    ]
    assert list(gpu_opdb.sweep(machine, 60.0)) == expected
    monkeypatch.setattr(gpu_opdb, "SCRIPT", tmp_path / "not there.py")
    assert list(gpu_opdb.sweep(machine, 60.0)) == expected


STOPS = """
import json, sys
log, skip = (sys.argv[sys.argv.index(name) + 1] for name in ("--log", "--skip"))
result = {"name": f"op{skip}", "dtype": "int8", "problem": "", "seen": 4, "wrong": 0}
end = {"stopped": 1} if skip == "0" else {"done": True}
lines = [{"position": int(skip), "case": "op int8"}, {"position": int(skip), "result": result}, end]
open(log, "w").write("\\n".join(map(json.dumps, lines)))
"""


def test_a_further_call_goes_on_in_the_database(machine, monkeypatch, tmp_path):
    script = tmp_path / "stops.py"
    script.write_text(STOPS)
    monkeypatch.setattr(gpu_opdb, "SCRIPT", script)
    (first,), (second,) = (list(gpu_opdb.sweep(machine, 60.0)) for _ in range(2))
    assert (first["samples"], "skipped" in first) == (4, True)
    assert (second["samples"], "skipped" in second) == (8, False)


def test_the_extension_is_built_by_a_setuptools_that_cannot_read_the_project(tmp_path):
    capture, package = gpu.ROOT / "packages" / "capture", tmp_path / "capture"
    package.mkdir()
    (package / "src").symlink_to(capture / "src")
    (package / "setup.py").symlink_to(capture / "setup.py")
    (package / "pyproject.toml").write_text("what this setuptools does not know")
    assert gpu.compile_extension(package, tmp_path / "built") == ""
    assert list((tmp_path / "built" / "fxstack_capture").glob("_native.*.so"))


def test_the_end_of_a_models_process_is_told():
    ended = [gpu_models.ended_in_time([sys.executable, "-c", code], 5) for code in ("", "exit(3)")]
    assert ended == ["", "status 3"]
    hangs = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert gpu_models.ended_in_time(hangs, 0.2) == gpu_models.STOPPED
