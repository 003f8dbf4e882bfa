"""Run ``uncompiled_operators.py`` in two processes, with and without FXSTACK=1, and compare the outcomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fxstack

SCRIPT = Path(__file__).with_name("uncompiled_operators.py")
_START = "import runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
_AROUND = 200
"""Characters of an outcome that are shown from the first difference on."""


def outcomes(value: str, only: str, every: int) -> dict[str, str]:
    """The outcomes by name, of a process that starts as an installation of fxstack does."""
    start = (Path(fxstack.__file__).parents[1] / "fxstack.pth").read_text()
    command = [sys.executable, "-c", start + _START, str(SCRIPT), only, str(every)]
    environment = {**os.environ, "FXSTACK": value}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(line) for line in done.stdout.splitlines())


def differences(only: str = "", every: int = 1) -> tuple[int, list[str]]:
    """Return how many programs ran, and a text for each whose outcome differs."""
    plain, installed = (outcomes(value, only, every) for value in ("0", "1"))
    assert plain.keys() == installed.keys()
    found = []
    for name, expected in plain.items():
        actual = installed[name]
        if actual != expected:
            at = len(os.path.commonprefix([actual, expected]))
            shown = (repr(text[at : at + _AROUND]) for text in (actual, expected))
            found.append(f"{name}: {' is not '.join(shown)}")
    return len(plain), found
