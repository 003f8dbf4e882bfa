"""Find a C compiler, and everything about it that decides its output."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from fxstack_inductor.errors import CompilerFailedError, CompilerKilledError, NoCompilerError, first_error
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.parts import parts_of

CANDIDATES = ("gcc", "cc", "clang")
"""Names of C compilers, in the order in which they are looked for."""

OPAQUE_FUNCTIONS = ("asin", "acos", "atan", "asinh", "acosh", "atanh", "sin", "cos")
"""Functions for which C compilers know identities; ``prelude.h`` declares them."""

FLAGS = (
    "-march=native",
    "-std=gnu11",
    "-fPIC",
    "-shared",
    "-fopenmp-simd",  # teams of threads call torch's runtime themselves (codegen/c/threads.py)
    "-fwrapv",  # integers wrap around, as in tensors
    "-fno-math-errno",
    "-fno-trapping-math",
    # Without errno GCC replaces sin(atan(x)) by a square root, which turns NaN into numbers. It computes the sine and the
    # cosine of one number by a complex exponential, which has no vector version.
    *(f"-fno-builtin-{name}{kind}" for name in OPAQUE_FUNCTIONS for kind in ("", "f")),
    "-ffp-contract=off",  # a*b + c rounds twice, as in eager
    "-fno-semantic-interposition",
    "-fno-strict-aliasing",  # tiles are transposed as words, whatever their type
    "-w",
)
VECTOR_FLAGS = ("-mprefer-vector-width=512",)

PROBE = """\
#include <math.h>
#include <stdint.h>
double probe(double x) { return sin(x); }
"""

INSTALL_HINT = (
    "install one (Debian/Ubuntu: apt install gcc; Fedora: dnf install gcc; macOS: xcode-select "
    "--install) or name one in the environment variable FXSTACK_CC"
)

REPAIR_HINT = (
    "mend it (headers missing on Debian/Ubuntu: apt install libc6-dev; Fedora: dnf install glibc-devel) or name another "
    "in the environment variable FXSTACK_CC"
)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler with flags; ``identity`` changes whenever the same source might give another binary."""

    path: str
    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    """Arguments that link libraries, for example ``-lm``."""
    identity: str

    def compile(self, source: Path, output: Path) -> None:
        """Compile ``source`` into the library ``output``; a large source in parts, in parallel.

        Raises:
            NoCompilerError: the compiler cannot compile any program here.
            CompilerFailedError: the compiler rejects this source.
        """
        parts = parts_of(source.read_text(encoding="utf-8"))
        if min(len(parts), processors()) > 1 and self._compile_parts(parts, output):
            return
        command = self._command(source, output)
        done = _run(command)
        if done.returncode == 0:
            return
        if (reason := self._broken()) is not None:
            raise NoCompilerError(
                f"the C compiler {self.path} does not compile a program of three lines ({reason}): "
                f"to compile kernels, {REPAIR_HINT}"
            )
        if done.returncode < 0:
            ended = f"was killed by signal {-done.returncode}, which happens where memory runs out"
            raise CompilerKilledError(f"{' '.join(command)} {ended}", f"{self.path} {ended}")
        raise CompilerFailedError(
            f"{' '.join(command)} failed with status {done.returncode}; this is a defect of fxstack-inductor, "
            f"please report it with this output:\n{done.stderr[-4000:]}",
            first_error(done.stderr) or f"it ended with status {done.returncode}",
        )

    def _compile_parts(self, parts: list[str], output: Path) -> bool:
        """Compile ``parts`` in parallel and link them; return whether all went well.

        After a failure, the caller compiles the whole file, to have its error message.
        """
        flags = [flag for flag in self.flags if flag != "-shared"]
        with tempfile.TemporaryDirectory(prefix="fxstack-") as name:

            def compile_part(k: int) -> bool:
                """Compile part ``k`` and return whether that succeeded."""
                source = Path(name) / f"part{k}.c"
                source.write_text(parts[k], encoding="utf-8")
                target = str(source.with_suffix(".o"))
                return _run([self.path, *flags, "-c", str(source), "-o", target]).returncode == 0

            with ThreadPoolExecutor(processors()) as pool:
                if not all(pool.map(compile_part, range(len(parts)))):
                    return False
            objects = [str(Path(name) / f"part{k}.o") for k in range(len(parts))]
            linked = [self.path, *self.flags, *objects, "-o", str(output), *self.libraries]
            return _run(linked).returncode == 0

    def _command(self, source: Path, output: Path) -> list[str]:
        """Return the command that compiles ``source`` into the library ``output``."""
        return [self.path, *self.flags, str(source), "-o", str(output), *self.libraries]

    def _broken(self) -> str | None:
        """Return the reason why not even a trivial program compiles; None if one does."""
        try:
            with tempfile.TemporaryDirectory(prefix="fxstack-") as name:
                source = Path(name) / "probe.c"
                source.write_text(PROBE)
                done = _run(self._command(source, source.with_suffix(".so")))
        except OSError as error:
            return str(error)
        if done.returncode == 0:
            return None
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        return lines[0].strip() if lines else f"it ends with status {done.returncode}"


def find_toolchain(options: InductorOptions) -> Toolchain:
    """Return the compiler that ``options`` name, or the first of ``CANDIDATES`` on PATH.

    Raises:
        NoCompilerError: there is no compiler.
    """
    names = (options.compiler,) if options.compiler else CANDIDATES
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return _describe(os.path.realpath(path), path, options.optimization)
    looked = f"FXSTACK_CC={names[0]}" if options.compiler else ", ".join(CANDIDATES)
    raise NoCompilerError(f"no C compiler found (looked for {looked}): to compile kernels, {INSTALL_HINT}")


@lru_cache(maxsize=8)
def _describe(real: str, path: str, optimization: int) -> Toolchain:
    """Return the compiler at ``path`` (``real`` without links), with flags for this machine."""
    status = Path(real).stat()
    libc = glibc_version()
    flags, mathematics = compiler_flags(optimization)
    libraries = ("-Wl,--as-needed", *openmp_libraries(), *mathematics)
    parts = [real, status.st_size, status.st_mtime_ns, flags, libraries, libc, cpu_features()]
    identity = hashlib.sha256(repr(parts).encode()).hexdigest()
    return Toolchain(path, flags, libraries, identity)


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler and return its status and output."""
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


def compiler_flags(optimization: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (flags for this machine, arguments for the libraries beside OpenMP's)."""
    flags: tuple[str, ...] = (f"-O{optimization}", *FLAGS)
    if platform.machine() != "x86_64":
        return flags, ("-lm",)
    flags += VECTOR_FLAGS
    libc = glibc_version()
    if libc is None or libc < 222:
        return flags, ("-lm",)
    return (*flags, f"-DFXSTACK_LIBMVEC={libc}"), ("-lmvec", "-lm")


def glibc_version() -> int | None:
    """Return 235 for glibc 2.35; None with another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError, AttributeError):
        return None
    if name != "glibc":
        return None
    major, minor = version.split(".")[:2]
    return int(major) * 100 + int(minor)


def openmp_libraries() -> tuple[str, ...]:
    """Return the path of the OpenMP runtime that torch has loaded, so that no second one is loaded; else the compiler's own."""
    paths = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    return tuple(str(path) for path in paths[:1]) or ("-fopenmp",)


def cpu_features() -> str:
    """Return the CPU features on which ``-march=native`` depends, as one text for ``Toolchain.identity``."""
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return " ".join(sorted(line.partition(":")[2].split()))
    return f"{platform.machine()} {platform.processor()}"
