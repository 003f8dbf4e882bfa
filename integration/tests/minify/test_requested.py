"""``TORCHDYNAMO_REPRO_AFTER``: compiled graphs are checked at their first call, and a script is written."""

import pytest

from .planting import python

PROGRAM = """
import torch
import fxstack
step = fxstack.compile(lambda x: (x.{name}() * 2).exp())
print(step(torch.rand(3)).shape)
"""
CASES = {
    "dynamo-4": ("a wrong lowering", "atan", "dynamo", "4", "WrongResultError", True),
    "dynamo-2": ("an exception of the compiler", "atan", "dynamo", "2", "KeyError", True),
    "aot-4": ("a wrong lowering", "atan", "aot", "4", "WrongResultError", True),
    "level 2 does not compare": ("a wrong lowering", "atan", "dynamo", "2", "", False),
    "nothing is wrong": ("", "atan", "dynamo", "4", "", False),
}


@pytest.mark.parametrize("case", CASES)
def test_the_environment_asks_for_a_script(tmp_path, case):
    fault, name, after, level, error, written = CASES[case]
    (tmp_path / "program.py").write_text(PROGRAM.format(name=name))
    variables = {"TORCHDYNAMO_REPRO_AFTER": after, "TORCHDYNAMO_REPRO_LEVEL": level}
    done = python(tmp_path, fault, "program.py", **variables)
    assert (done.returncode, error in done.stderr) == (1 if error else 0, True), done.stderr
    assert (tmp_path / "fxstack_minified.py").exists() == written
    if written:
        assert python(tmp_path, fault, "fxstack_minified.py").returncode == 1


def test_level_3_writes_a_graph_before_the_process_dies(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM.format(name="atan"))
    variables = {"TORCHDYNAMO_REPRO_AFTER": "dynamo", "TORCHDYNAMO_REPRO_LEVEL": "3"}
    done = python(tmp_path, "", "program.py", **variables)
    (graph,) = tmp_path.glob("*.case")
    assert (done.returncode, f"fxstack minify {graph.name}" in done.stderr) == (0, True)
    done = python(tmp_path, "a wrong lowering", "-m", "fxstack", "minify", graph.name)
    assert (done.returncode, "stage: inductor kernels" in done.stdout) == (1, True), done.stderr


SETTING = """
import torch, fxstack
import torch._dynamo
fxstack.install()
torch._dynamo.config.repro_after = "dynamo"
torch._dynamo.config.repro_level = 4
torch.compile(lambda x: x.atan())(torch.rand(3))
"""


def test_the_setting_of_torch_asks_for_a_script(tmp_path):
    (tmp_path / "program.py").write_text(SETTING)
    done = python(tmp_path, "a wrong lowering", "program.py")
    assert ("WrongResultError" in done.stderr, (tmp_path / "fxstack_minified.py").exists()) == (True, True)
    assert "has no effect" not in done.stderr
