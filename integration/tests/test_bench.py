"""``fxstack bench``: what it measures, of scripts and of models."""

import json
import re

import pytest
from typer.testing import CliRunner

from fxstack.cli import bench, timed
from fxstack.cli.main import app


def invoke(*arguments):
    """Return the exit status and what a command prints."""
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


SCRIPT = """
import sys
import torch
model = torch.nn.Linear(4, 4)
step = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(int(sys.argv[1])):
    step(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""
MODELS = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return x.sin()
def make():
    return Net()
def double(x):
    return x * 2
made = Net()
"""


def test_a_script_in_three_systems(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    status, printed = invoke("bench", "--json", "train.py", "5")
    found = json.loads(printed[printed.index("[") : printed.rindex("]") + 1])
    assert (status, [row["system"] for row in found]) == (0, ["eager", "torch.compile", "fxstack"])
    assert all(row["steps"] == 5 and row["low"] <= row["median"] <= row["high"] for row in found)
    assert all(row["first"] > row["median"] and row["memory"] > 2**20 for row in found[1:])


@pytest.mark.parametrize("name", ["Net", "made", "make", "double"])
def test_a_model_by_its_name(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"models_{name}.py").write_text(MODELS)
    clock = timed.Clock()
    monkeypatch.setattr(timed.torch, "compile", timed.torch.compile)
    timed.run("fxstack", f"models_{name}:{name}", ["4", "torch.ones(3)"], clock)
    assert len(clock.seconds()) == 4


def test_a_failing_program_is_reported(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("def main():\n    raise ValueError('mine')\nmain()")
    status, printed = invoke("bench", "train.py")
    printed = " ".join(printed.split())
    assert (status, printed.count("FAILED: ValueError: mine")) == (1, 3)
    assert (
        printed.count("train.py:2 in main: raise ValueError('mine') fix: mend the program: it fails in") == 3
    )
    assert invoke("bench", "nowhere.py")[0] == 2


ENDS = {
    "eager": (
        "os._exit(9)",
        "the program ends with exit code 9",
        "mend the program: it fails in plain eager",
    ),
    "torch.compile": ("1 / 0", "ZeroDivisionError: division by zero", "none here: the program runs in eager"),
    "fxstack": (
        "os.kill(os.getpid(), 11)",
        "the program ends by SIGSEGV",
        "report it, .* 'fxstack minify train.py' writes",
    ),
}


@pytest.mark.parametrize("system", ENDS)
def test_each_system_says_how_it_failed_and_what_to_do(monkeypatch, tmp_path, system):
    line, error, fix = ENDS[system]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(f"import os\n{line}\n")
    found = bench._measure(system, "train.py", (), bench.Result("eager"))
    assert found.error == error
    assert re.match(fix, found.fix)
    assert found.line == ("train.py:2 in <module>: 1 / 0" if "Zero" in error else "")


def test_a_busy_machine_is_named(monkeypatch):
    monkeypatch.setattr(bench.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(bench.os, "getloadavg", lambda: (1.5, 0, 0))
    assert re.search("load 1.5 on 2 cores", bench.busy())
    monkeypatch.setattr(bench.os, "getloadavg", lambda: (0.5, 0, 0))
    assert bench.busy() == ""


def test_quartiles_leave_out_the_first_steps():
    assert bench.quartiles([9.0, 8.0, 1.0, 2.0, 3.0]) == (1.0, 2.0, 3.0)
    assert bench.quartiles([9.0]) == (9.0, 9.0, 9.0)
