"""The README's example runs, and the commands it names exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_example_runs_and_prints_what_it_should(capsys):
    (example,) = blocks("python")
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out == "torch.Size([64, 64])\n1 graph\n"


def test_commands_name_nox_sessions():
    sessions = re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(), flags=re.MULTILINE)
    named = re.findall(r"nox -s (\w+)", README)
    assert named == ["demo", "tests"]
    assert set(named) <= set(sessions)


def test_links_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_demo_runs_small(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("rich")
    script = ROOT / "integration/examples/train_gpt.py"
    small = ["--steps", "4", "--layers", "1", "--width", "32", "--batch", "2"]
    done = subprocess.run(
        [sys.executable, str(script), *small, "--output", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    assert "GPT compiled by fxstack" in (tmp_path / "report.html").read_text()
    assert "graph breaks" in done.stdout
