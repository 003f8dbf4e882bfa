"""Build, cache and load ``native/readers/tensor_check.cpp`` for the installed torch.

The C++ compiler runs in the background at the lowest priority. One compilation takes two to four seconds;
each machine, torch and Python needs one. Until it has finished, or if there is no C++ compiler, guards read
tensors in the slow way. The file reaches the user's cache directory by an atomic rename. Therefore concurrent
processes and killed compilers leave no incomplete file. If there is a shell, the compiling process does the
rename, so that the file is there even if this process ends first. The compiler inherits a lock, which keeps
other processes from compiling the same file. Hundreds of processes may start at the same time or in sequence.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from fxstack_capture import torch_compat
from fxstack_capture.guards.tensor_reading import agrees_with_torch, prepare_tensors

_READERS = Path(__file__).parent.parent / "native/readers"
_SOURCES = ("tensor_check.cpp", "tensor_api.h")
_MODULE = "fxstack_tensor_check"
_SCRIPT = """
out=$1 target=$2; shift 2
if command -v nice >/dev/null; then set -- nice -n 19 "$@"; fi
"$@" -o "$out" && mv -f -- "$out" "$target"
"""
"""The shell program: compile to ``$1`` at low priority, and rename the result to ``$2``."""
_ABANDONED = 3600.0
"""A temporary file older than this many seconds counts as left behind by a killed compiler."""
_PAUSE = 0.05
"""Seconds between two tests of whether another process has finished the compilation."""
_LAST_STEP = 10.0
"""Seconds that a process waits at its end, at most, for a running build step.

A build step takes milliseconds. The limit is for forked processes: the thread that holds the lock may not
exist there.
"""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """One compilation: the command up to the output file, and the path of the result."""

    command: tuple[str, ...]
    """The compiler and its arguments, without ``-o`` and the output file."""
    target: Path
    """The path of the result in the cache directory. The name contains a hash of the command, the sources and
    torch.
    """


def cache_directory() -> Path:
    """Return the directory of compiled checks: ``FXSTACK_CACHE_DIR``, or the user's cache directory."""
    chosen = os.environ.get("FXSTACK_CACHE_DIR")
    if chosen:
        return Path(chosen) / "tensor_check"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fxstack" / "tensor_check"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fxstack" / "tensor_check"


def find_compiler() -> str | None:
    """Return the path of the C++ compiler: ``CXX`` or a usual name. Return None without a compiler."""
    candidates = (os.environ.get("CXX"), "g++", "c++", "clang++")
    return next((path for name in candidates if name and (path := shutil.which(name))), None)


def make_plan(compiler: str, directory: Path) -> BuildPlan:
    """Return the compilation for this torch and this Python. Its result goes to ``directory``."""
    torch_root = Path(torch.__file__).parent
    library = torch_root / "lib"
    command = (
        *(compiler, "-O2", "-g0", "-shared", "-fPIC", "-std=c++20"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch_compat.GLIBCXX_USE_CXX11_ABI)}",
        *(f"-I{path}" for path in (_READERS, torch_root / "include", sysconfig.get_path("include"))),
        str(_READERS / "tensor_check.cpp"),
        *(f"-L{library}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{library}"),
    )
    key = hashlib.sha256()
    for part in (*command, torch.__version__, str(torch.version.git_version), sys.version):
        key.update(part.encode() + b"\0")
    for name in _SOURCES:
        key.update((_READERS / name).read_bytes())
    return BuildPlan(command, directory / f"{_MODULE}-{key.hexdigest()[:24]}.so")


def load(path: Path) -> object:
    """Import the extension module at ``path``, and return its capsule of C functions for ``native.use_tensors``."""
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(path))
    spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module.api


def _build_command(plan: BuildPlan, output: str) -> list[str]:
    """Return the command that compiles to ``output``. If there is a shell, the command runs ``_SCRIPT``."""
    shell = shutil.which("sh")
    if shell is None:
        return [*plan.command, "-o", output]
    return [shell, "-c", _SCRIPT, "sh", output, str(plan.target), *plan.command]


@contextlib.contextmanager
def _claimed(path: Path) -> Iterator[tuple[int, ...] | None]:
    """Lock the file ``path``. Yield the descriptors that hold the lock, or None if another process holds it.

    The lock is held as long as a process has the descriptors. Windows and some network file systems cannot
    lock files. There, the result is an empty tuple, as if no other process compiled.
    """
    try:
        import fcntl  # noqa: PLC0415 - not on every platform
    except ImportError:
        yield ()
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        except OSError:
            yield ()
        else:
            yield (descriptor,)
    finally:
        os.close(descriptor)


def _sweep(directory: Path) -> None:
    """Remove old temporary files of killed compilers."""
    for path in directory.glob("*.tmp"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
        except OSError:
            continue


class TensorChecks:
    """The build of the compiled checks.

    ``compile_guards`` calls ``poll`` for each tree. ``poll`` never waits: it starts the build, watches it,
    and switches the native code to the compiled checks when they are ready.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.compiled = False
        self.why_not: str | None = None
        self.capsule: object = None
        self._directory = directory or cache_directory()
        self._plan: BuildPlan | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output: Path | None = None
        self._watched = False
        self._polling = threading.Lock()

    def poll(self) -> bool:
        """Start, watch or finish the build without waiting. Return True if the compiled checks are in use."""
        if self.compiled or self.why_not is not None or not self._polling.acquire(blocking=False):
            return self.compiled
        try:
            self._step()
        except Exception as error:  # Guards work without the compiled checks, so any error is acceptable.
            self.why_not = f"{type(error).__name__}: {error}"
        finally:
            self._polling.release()
        return self.compiled

    def wait(self) -> bool:
        """Poll until the build has succeeded or failed. Benchmarks and tests call this method."""
        while not self.poll() and self.why_not is None:
            if self._process is not None:
                self._process.wait()
            time.sleep(_PAUSE)
        return self.compiled

    def _step(self) -> None:
        """Take the next step of the build that is possible now: plan, start, watch, or use the result.

        Set ``why_not`` if there is no C++ compiler. ``poll`` calls this method under its lock.
        """
        if self._plan is None:
            compiler = find_compiler()
            if compiler is None:
                self.why_not = "there is no C++ compiler (g++, clang++, or CXX)"
                return
            self._plan = make_plan(compiler, self._directory)
        if self._process is None:
            if not self._plan.target.exists():
                self._start(self._plan)
                return
        elif not self._finished(self._plan):
            return
        self._use(self._plan)

    def _start(self, plan: BuildPlan) -> None:
        """Start the compiler, unless another process is compiling or has just finished."""
        plan.target.parent.mkdir(parents=True, exist_ok=True)
        with _claimed(plan.target.with_suffix(".lock")) as lock:
            if lock is not None and not plan.target.exists():
                self._compile(plan, lock)
        if not self._watched:
            self._watched = True
            atexit.register(self._close)
            # The program may never compile another frame, so a thread polls until the checks are ready.
            threading.Thread(target=self.wait, name="fxstack tensor checks", daemon=True).start()

    def _compile(self, plan: BuildPlan, lock: tuple[int, ...]) -> None:
        """Start the compiler process. The process inherits the lock, which ends with the process."""
        _sweep(plan.target.parent)
        handle, name = tempfile.mkstemp(suffix=".tmp", dir=plan.target.parent)
        os.close(handle)
        self._output = Path(name)
        self._process = subprocess.Popen(  # noqa: S603 - the user's own compiler on our own source
            _build_command(plan, name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=lock,
        )

    def _close(self) -> None:
        """At the end of the process, wait until a running step has ended, and forbid further steps."""
        # A thread that calls torch while the interpreter finalises makes the process abort.
        if self._polling.acquire(timeout=_LAST_STEP):
            self.why_not = self.why_not or "the process ends"
            self._polling.release()

    def _finished(self, plan: BuildPlan) -> bool:
        """Return whether the compiler process has ended. If so, move its output to the target, unless the
        shell has.

        Raises RuntimeError with the compiler's messages if the compiler failed.
        """
        assert self._process is not None
        assert self._output is not None
        if self._process.poll() is None:
            return False
        _nothing, errors_read = self._process.communicate()
        if self._process.returncode != 0:
            errors = errors_read.decode(errors="replace")
            self._output.unlink(missing_ok=True)
            raise RuntimeError(f"the C++ compiler failed: {errors[:500]}")
        if self._output.exists():
            self._output.replace(plan.target)
        return True

    def _use(self, plan: BuildPlan) -> None:
        """Load the compiled checks, and use them if they agree with torch.

        If not, go back to the slow way and raise RuntimeError.
        """
        capsule = load(plan.target)
        prepare_tensors(capsule)
        if not agrees_with_torch():
            prepare_tensors()
            raise RuntimeError("the compiled checks disagree with this torch")
        self.compiled, self.capsule = True, capsule


TENSOR_CHECKS = TensorChecks()
"""The build of this process. The native code has one set of functions for the whole process."""
