"""The README's example runs, and the commands it names exist."""

import os
import re
import signal
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


def test_installs_every_distribution():
    (line,) = re.findall(r"pip install (\./.*)", README)
    distributions = {path.parent for path in ROOT.glob("packages/*/pyproject.toml")} | {ROOT / "integration"}
    assert {(ROOT / folder).resolve() for folder in line.split()} == distributions


def start_demo(folder, *arguments):
    """Start a small demo with empty caches; its output is text."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("rich")
    small = ["--layers", "1", "--width", "32", "--batch", "2", "--output", str(folder), *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "FXSTACK"}
    environment["FXSTACK_INDUCTOR_CACHE_DIR"] = str(folder / "cache")
    return subprocess.Popen(
        [sys.executable, "-u", str(ROOT / "integration/examples/train_gpt.py"), *small],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment | {"COLUMNS": "120"},
        # A shell's background jobs ignore Ctrl-C, and so do their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def ended(demo):
    """Wait for the end of a demo that succeeds; return what it prints."""
    try:
        printed, errors = demo.communicate(timeout=600)
    finally:
        demo.kill()
    assert demo.returncode == 0, errors
    return printed


def test_demo_compiles_then_reads_the_cache(tmp_path):
    first = ended(start_demo(tmp_path, "--steps", "4", "--systems", "fxstack"))
    assert "fxstack: compiling ..." in first
    assert "graph breaks" in first
    assert "from cache" not in first.split("Next:")[0]
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    assert "GPT compiled by fxstack" in (tmp_path / "report.html").read_text()
    second = ended(start_demo(tmp_path, "--steps", "4", "--systems", "fxstack"))
    assert "from cache" in second.split("Next:")[0]


def test_demo_keeps_partial_results(tmp_path):
    demo = start_demo(tmp_path, "--steps", "1000000", "--systems", "fxstack")
    assert any(line.startswith("step 20 of 1000000") for line in demo.stdout)
    demo.send_signal(signal.SIGINT)
    printed = ended(demo)
    assert re.search(r"Stopped after \d+ of 1000000 steps", printed)
    assert "speedup" in printed
    assert (tmp_path / "report.html").exists()


def test_demo_runs_beside_torch_compile(tmp_path):
    printed = ended(start_demo(tmp_path, "--steps", "4"))
    assert all(f"{system}: compiling ..." in printed for system in ("torch.compile", "fxstack"))
    assert "FXSTACK=1" in printed.split("Next:")[1]
