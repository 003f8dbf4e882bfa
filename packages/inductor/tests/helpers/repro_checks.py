"""``run_alone(fn, *inputs)``: compile, write the script, and run it where this package cannot be imported."""

import os
import subprocess
import sys
from pathlib import Path

from inductor_checks import FAST, trace

import fxstack_inductor as fi

PACKAGES = Path(fi.__file__).resolve().parents[1]


def run_script(path):
    """The finished process; torch alone can be imported in it."""
    found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [part for part in found if part and not list(Path(part).glob("fxstack*"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(kept)}
    text = path.read_text()
    assert "fxstack_inductor" not in text.replace("fxstack-inductor", "")
    command = [sys.executable, str(path), "--repeats", "3"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def run_alone(path, fn, *inputs, symbolic=False, options=FAST):
    """What the script of ``fn``'s compiled graph prints; it has to agree with eager."""
    compiled = fi.compile_graph(trace(fn, *inputs, symbolic=symbolic), inputs, options)
    done = run_script(fi.write_repro(compiled, inputs, path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "check: ok" in done.stdout
    assert "time: compiled: median of 3" in done.stdout
    return done.stdout
