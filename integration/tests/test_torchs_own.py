"""With ``FXSTACK=1``, a program that calls no compiler behaves as without it, though torch compiles inside of it."""

import os
import subprocess
import sys
from pathlib import Path

from uncompiled_outcomes import differences

import fxstack

PROGRAMS = Path(__file__).with_name("eager_programs.py")
START = "import runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"


def outcomes(**variables):
    """The lines of the programs, by name, in a process with ``fxstack.pth`` executed as an installation does."""
    start = (Path(fxstack.__file__).parents[1] / "fxstack.pth").read_text()
    command = [sys.executable, "-c", start + START, str(PROGRAMS)]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def test_eager_programs_have_the_same_outcomes():
    plain = outcomes(FXSTACK="0")
    assert len(plain) > 20
    assert outcomes(FXSTACK="1") == plain


def test_operators_with_functions_are_torchs():
    count, found = differences(every=47)
    assert count >= 19
    assert found == []
