"""The commands of the page on symptoms do on its program what the page says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/what-now.md").read_text()
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def finished(folder, command):
    """Run a command of the page in ``folder``. Return what it prints."""
    (folder / "train.py").write_text(PROGRAM)
    _, *words = shlex.split(command)
    environment = {**os.environ, "FXSTACK_INDUCTOR_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "fxstack", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return " ".join((done.stdout + done.stderr).split())


EXPECTED = {
    "fxstack explain train.py": [
        r"1 function compiled into 4 graphs, with 2 graph breaks and 2 recompilations\.",
        r"because a branch depends on the value of a tensor.* Fix: Use torch\.where",
        r"was compiled again because x changed: sizes is \(33, 32\) \(was \(16, 32\)\)",
        r"The slowest step is ",
        r"The forward saves ",
    ],
    "fxstack run --debug breaks train.py": [r"\[data-dependent-branch\].*if hidden\.abs\(\)\.max\(\) > 1e4"],
    "fxstack run --debug recompiles train.py": [r"sizes is \(33, 32\) \(was \(16, 32\)\)"],
    "fxstack run --report out train.py": [],
    "fxstack minify train.py": [r"[Nn]othing is wrong|nothing"],
    "fxstack passes fuse_tensors --examples": [r">>> example\(\"fuse_tensors\""],
    "fxstack run --debug schedule:after=fuse_tensors train.py": [
        r"== fxstack schedule after fuse_tensors of Net"
    ],
    'fxstack run --debug "" --folder passes train.py': [],
}


def test_every_command_of_the_page_has_a_test():
    assert list(EXPECTED) == COMMANDS


@pytest.mark.parametrize("command", EXPECTED)
def test_a_command_prints_what_the_page_says(tmp_path, command):
    printed = finished(tmp_path, command)
    assert [text for text in EXPECTED[command] if not re.search(text, printed)] == []
    if "--report" in command:
        (page,) = (tmp_path / "out").glob("process-*.html")
        for heading in ("Refused fusions", "Partition: ", "Memory timeline", "of bandwidth", "Flame chart"):
            assert heading in page.read_text()
    if "--folder" in command:
        assert len(list((tmp_path / "passes").glob("*_pass_schedule_fuse_tensors.txt"))) == 4 * 2
