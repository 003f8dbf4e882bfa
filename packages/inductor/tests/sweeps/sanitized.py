"""Kernels and native host programs under the address and undefined-behaviour sanitizers, at -O1, with gcc and clang.

    python packages/inductor/tests/sweeps/sanitized.py [--compilers gcc,clang] [--only PATTERN] [--seconds 600]

Each of ``PROGRAMS`` runs in a process that has the sanitizer's runtime preloaded and finds a compiler called ``gcc`` that adds
the sanitizer's flags. What torch frees is filled, and what it allocates too, so that reading either shows in values. A kernel
that reads behind its argument comes first: if that is not reported, nothing else would be. Prints each report, and totals.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SWEEPS = Path(__file__).parent
FLAGS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"
# Tiles are turned over as words, whatever their elements; the flags of kernels allow for that.
LEFT_OUT = "-fno-sanitize=alignment"
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:max_free_fill_size=4096:free_fill_byte=165:quarantine_size_mb=64",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
BEHIND = """
import torch, fxstack_inductor as fi
from fxstack_inductor.runtime.loader import load_functions
source = "#include <stdint.h>\\nvoid f(const float* a, float* b) { b[0] = a[16]; }"
function = load_functions(source, {"f": 2}, fi.InductorOptions(use_cache=False))["f"]
function(torch.zeros(16).data_ptr(), torch.zeros(1).data_ptr())
"""
OPERATORS = (
    "pool|pad|index|scatter|gather|norm|softmax|loss|cum|interpolate|cat|sort|unfold|shift|div"
)
PROGRAMS = {
    "expressions": ("expressions.py", "--seed", "990000", "--count", "64", "--batch", "32"),
    "symbolic expressions": (
        *("expressions.py", "--seed", "995000", "--count", "16", "--batch", "4", "--symbolic"),
    ),
    "operators": ("opdb.py", "--dtypes", "float32,int64", "--samples", "2", "--ops", OPERATORS),
    "gradients": ("opdb.py", "--grad", "--samples", "2", "--ops", "pool|pad|index|norm|softmax"),
    "kernels": (
        *("../../benchmarks/kernels.py", "--sizes", "small", "--rounds", "1"),
        *("--seconds", "0.001", "--no-torch"),
    ),
}


def runtime(compiler, name):
    """The path of the compiler's library ``name``."""
    command = [compiler, f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def wrapper(compiler, directory):
    """A compiler called gcc in ``directory``, and the environment in which it is found."""
    real, clang = shutil.which(compiler), "clang" in compiler
    flags = f"{FLAGS} {LEFT_OUT}" + (" -shared-libasan" if clang else "")
    script = directory / "gcc"
    script.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {real} "$@" {flags}\n')
    script.chmod(0o755)
    names = ["libclang_rt.asan-x86_64.so"] if clang else ["libasan.so", "libubsan.so"]
    libraries = " ".join(runtime(real, name) for name in names)
    path = f"{directory}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **OPTIONS, "PATH": path, "LD_PRELOAD": libraries}


def run(arguments, environment, seconds):
    """The status and output of a Python process; status None where it was stopped."""
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(
            command,
            env=environment,
            timeout=seconds,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired as stopped:
        output = stopped.stdout or b""
        return None, output if isinstance(output, str) else output.decode()
    return done.returncode, done.stdout


def reports(status, output):
    """What a sanitizer or the program itself found."""
    if status == 0:
        return []
    lines = re.findall(r".*(?:ERROR: AddressSanitizer|runtime error:).*", output)
    return lines or ([] if status is None else [output.strip()[-2000:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compilers", default="gcc,clang")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=600, help="the most for each program")
    args = parser.parse_args()
    found = 0
    for compiler in filter(shutil.which, args.compilers.split(",")):
        with tempfile.TemporaryDirectory() as name:
            environment = wrapper(compiler, Path(name))
            status, output = run(["-c", BEHIND], environment, args.seconds)
            if status == 0 or "heap-buffer-overflow" not in output:
                raise SystemExit(f"{compiler}'s sanitizer does not work:\n{output[-2000:]}")
            for title, (script, *rest) in PROGRAMS.items():
                if not re.search(args.only, title):
                    continue
                status, output = run([str(SWEEPS / script), *rest], environment, args.seconds)
                problems = reports(status, output)
                found += len(problems)
                last = (output.strip().splitlines() or [""])[-1]
                ending = "stopped" if status is None else last
                print(f"{compiler}, {title}: {len(problems)} reports; {ending}", flush=True)
                for problem in problems:
                    print("  " + problem, flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
