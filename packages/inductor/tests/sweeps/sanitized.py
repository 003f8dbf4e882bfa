"""Kernels and native host programs under sanitizers, at -O1, with gcc and clang.

    python packages/inductor/tests/sweeps/sanitized.py [--sanitizers memory,threads] [--compilers gcc,clang] [--only PATTERN]
        [--seconds 600] [--dry]

``memory`` is the address and the undefined-behaviour sanitizer, ``threads`` the thread sanitizer. Each program runs in a
process that has the sanitizer's runtime preloaded and finds a compiler called ``gcc`` that adds the sanitizer's flags. What
torch frees is filled, and what it allocates too, so that reading either shows in values. The thread sanitizer does not know
what OpenMP's runtime does, so kernels start their teams by POSIX threads there (``TEAM``). A kernel with a defect comes
first: if that is not reported, nothing else would be. Prints each report, and totals.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SWEEPS = Path(__file__).parent
MEMORY_FLAGS = (
    "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined "
    # Tiles are turned over as words, whatever their elements; the flags of kernels allow for that. A float beyond all integers
    # becomes what the processor makes of it, as in eager.
    "-fno-sanitize=alignment,float-cast-overflow"
)
THREAD_FLAGS = "-O1 -g -fsanitize=thread"
WRAPPED = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
TEAM = """
#include <pthread.h>
static __thread int self, team = 1;
struct member { pthread_t thread; void (*fn)(void*); void* data; int self, team; };
static void* run(void* given) {
  struct member* m = given;
  self = m->self, team = m->team;
  m->fn(m->data);
  return 0;
}
void __wrap_GOMP_parallel(void (*fn)(void*), void* data, unsigned count, unsigned flags) {
  struct member members[64];
  for (unsigned k = 1; k < count; k++) {
    members[k] = (struct member){0, fn, data, k, count};
    pthread_create(&members[k].thread, 0, run, &members[k]);
  }
  self = 0, team = count;
  fn(data);
  team = 1;
  for (unsigned k = 1; k < count; k++) pthread_join(members[k].thread, 0);
}
int __wrap_omp_get_thread_num(void) { return self; }
int __wrap_omp_get_num_threads(void) { return team; }
"""
COMPILER = """#!{python} -S
import os, sys
os.environ.pop("LD_PRELOAD")  # a shell would end before it could
objects = "-c" in sys.argv  # is linked later, with what stands for OpenMP's runtime
flags = [flag for flag in {flags} if not (objects and flag.endswith(".c"))]
os.execv("{real}", ["{real}", *sys.argv[1:], *flags])
"""
START = """
import torch, fxstack_inductor as fi
from fxstack_inductor.runtime.loader import load_functions
def run(source):
    function = load_functions(source, {"f": 2}, fi.InductorOptions(use_cache=False))["f"]
    a, b = torch.zeros(16), torch.zeros(1)
    function(a.data_ptr(), b.data_ptr())
"""
BEHIND = 'run("void f(const float* a, float* b) { b[0] = a[16]; }")'
RACE = """
run('''
extern void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);
static void add(void* data) { for (int k = 0; k < 1000; k++) ++*(float*)data; }
void f(float* a, float* b) { GOMP_parallel(add, b, 3, 0); }
''')
"""
OPERATORS = "pool|pad|index|scatter|gather|norm|softmax|loss|cum|interpolate|cat|sort|unfold|shift|div"
MEMORY_PROGRAMS = {
    "expressions": ("expressions.py", "--seed", "990000", "--count", "64", "--batch", "32"),
    "symbolic expressions": (
        *("expressions.py", "--seed", "995000", "--count", "16", "--batch", "4", "--symbolic"),
    ),
    "operators": ("opdb.py", "--dtypes", "float32,int64", "--samples", "2", "--ops", OPERATORS),
    "gradients": ("opdb.py", "--grad", "--samples", "2", "--ops", "pool|pad|index|norm|softmax"),
    "small programs": ("small_programs.py", "--threads", "1"),
    "kernels": (
        *("../../benchmarks/kernels.py", "--sizes", "small", "--rounds", "1"),
        *("--seconds", "0.001", "--no-torch"),
    ),
}
SHARED = ("opdb.py", "--threads", "3", "--grain", "16", "--samples", "2")
THREAD_PROGRAMS = {
    "operators": (*SHARED, "--dtypes", "float32,int64,bool", "--ops", OPERATORS),
    "symbolic": (*SHARED, "--symbolic", "--ops", OPERATORS),
    "gradients": (*SHARED, "--grad", "--ops", "pool|pad|index|norm|softmax"),
    "small programs": ("small_programs.py", "--threads", "3"),
}


@dataclass(frozen=True)
class Sanitizer:
    """``defect`` is a program whose ``report`` shows that the sanitizer works."""

    flags: str
    libraries: dict[str, tuple[str, ...]]
    options: dict[str, str]
    defect: str
    report: str
    programs: dict[str, tuple[str, ...]]
    link: str = ""


SANITIZERS = {
    "memory": Sanitizer(
        flags=MEMORY_FLAGS,
        libraries={"gcc": ("libasan.so", "libubsan.so"), "clang": ("libclang_rt.asan-x86_64.so",)},
        options={
            "ASAN_OPTIONS": "detect_leaks=0:max_free_fill_size=4096:free_fill_byte=165:quarantine_size_mb=64",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
        defect=BEHIND,
        report="heap-buffer-overflow",
        programs=MEMORY_PROGRAMS,
    ),
    "threads": Sanitizer(
        flags=THREAD_FLAGS,
        libraries={
            "gcc": ("libtsan.so",),
            "clang": ("libtsan.so",),
        },  # clang's own ends in a fault where it is preloaded
        options={"TSAN_OPTIONS": "ignore_noninstrumented_modules=1:halt_on_error=0:exitcode=66"},
        defect=RACE,
        report="data race",
        programs=THREAD_PROGRAMS,
        link="{team} -lpthread " + " ".join(f"-Wl,--wrap={name}" for name in WRAPPED),
    ),
}


def runtime(compiler, name):
    """The path of the compiler's library ``name``."""
    command = [compiler, f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def wrapper(sanitizer, compiler, directory):
    """A compiler called gcc in ``directory``, and the environment in which it is found."""
    real, flags = shutil.which(compiler), sanitizer.flags
    if sanitizer.libraries[compiler][0].startswith("libclang_rt"):
        flags += " -shared-libasan"
    script, team = directory / "gcc", directory / "team.c"
    team.write_text(TEAM)
    flags += " " + sanitizer.link.format(team=team)
    script.write_text(COMPILER.format(python=sys.executable, real=real, flags=flags.split()))
    script.chmod(0o755)
    libraries = " ".join(runtime(real, name) for name in sanitizer.libraries[compiler])
    path = f"{directory}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **sanitizer.options, "PATH": path, "LD_PRELOAD": libraries}


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
    lines = re.findall(r".*(?:ERROR: AddressSanitizer|runtime error:|WARNING: Thread).*", output)
    if lines or status in {0, None}:
        return lines
    return [output.strip()[-2000:]]


def checked(sanitizer, compiler, args):
    """The number of reports about the programs of a sanitizer."""
    found = 0
    with tempfile.TemporaryDirectory() as name:
        environment = wrapper(sanitizer, compiler, Path(name))
        status, output = run(["-c", START + sanitizer.defect], environment, args.seconds)
        if status == 0 or sanitizer.report not in output:
            raise SystemExit(f"{compiler}'s sanitizer does not work:\n{output[-2000:]}")
        for title, (script, *rest) in sanitizer.programs.items():
            if not re.search(args.only, title):
                continue
            more = ["--dry"] if args.dry else []
            status, output = run([str(SWEEPS / script), *rest, *more], environment, args.seconds)
            problems = reports(status, output)
            found += len(problems)
            last = (output.strip().splitlines() or [""])[-1]
            ending = "stopped" if status is None else last
            print(f"{compiler}, {title}: {len(problems)} reports; {ending}", flush=True)
            for problem in problems:
                print("  " + problem, flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sanitizers", default=",".join(SANITIZERS))
    parser.add_argument("--compilers", default="gcc,clang")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=600, help="the most for each program")
    parser.add_argument("--dry", action="store_true", help="a few operators with one sanitizer")
    args = parser.parse_args()
    if args.dry:
        args.sanitizers, args.compilers, args.only = "threads", "gcc", "^operators$"
    found = 0
    for sanitizer in map(SANITIZERS.__getitem__, args.sanitizers.split(",")):
        for compiler in filter(shutil.which, args.compilers.split(",")):
            if compiler in sanitizer.libraries:
                found += checked(sanitizer, compiler, args)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
