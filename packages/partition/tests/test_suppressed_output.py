"""What HiGHS prints is dropped, what the program prints is not."""

import subprocess
import sys
from pathlib import Path

import fxstack_partition

SCRIPT = """
import ctypes, os, runpy
highs_silenced = runpy.run_path({path!r})["highs_silenced"]
libc = ctypes.CDLL(None)
print("before")
with highs_silenced():
    libc.printf(b"HighsMipSolverData::transform\\n")
    os.write(1, b"another thread\\n")
libc.printf(b"after\\n")
""".format(path=str(Path(fxstack_partition.__file__).with_name("suppressed_output.py")))


def test_only_lines_of_highs_are_dropped():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    assert done.stdout.split(b"\n") == [b"before", b"another thread", b"after", b""]


def test_a_closed_standard_output_is_no_error():
    head = "import os; os.close(1)"
    body = SCRIPT.partition("libc =")[0] + "with highs_silenced(): pass"
    subprocess.run([sys.executable, "-c", head + body], check=True)
