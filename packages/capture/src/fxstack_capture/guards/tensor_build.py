"""Builds, caches and loads ``native/tensor_check.cpp`` for the torch that is installed.

The compiler runs in the background at the lowest priority (two to four seconds, once per machine, torch and Python): until it
is done, and where there is no C++ compiler, guards read tensors the slow way. The file lands in the user's cache directory by
atomic rename, so concurrent processes and killed compilers leave nothing half-written; where there is a shell, the compiling
process renames it itself, so that the next process finds it even if this one does not live to see it done. A lock that the
compiler inherits keeps other processes from compiling the same: hundreds may start together, or one after the other.
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
from fxstack_capture.guards.tensor_selftest import agrees_with_torch
from fxstack_capture.guards.tensors import prepare_tensors

_NATIVE = Path(__file__).parent.parent / "native"
_SOURCES = ("tensor_check.cpp", "tensor_api.h")
_MODULE = "fxstack_tensor_check"
_SCRIPT = """
out=$1 target=$2; shift 2
if command -v nice >/dev/null; then set -- nice -n 19 "$@"; fi
"$@" -o "$out" && mv -f -- "$out" "$target"
"""
_ABANDONED = 3600.0
"""Seconds after which an unfinished file is nobody's any more."""
_PAUSE = 0.05
"""Seconds between two looks at what another process compiles."""
_LAST_STEP = 10.0
"""Seconds that a process waits at its end for a step, of milliseconds; in a forked process nobody may release the lock."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """One compilation: the command up to the output file, and where the result belongs."""

    command: tuple[str, ...]
    target: Path


def cache_directory() -> Path:
    """Where compiled checks are kept: ``FXSTACK_CACHE_DIR``, or the platform's user cache directory."""
    chosen = os.environ.get("FXSTACK_CACHE_DIR")
    if chosen:
        return Path(chosen) / "tensor_check"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fxstack" / "tensor_check"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fxstack" / "tensor_check"


def find_compiler() -> str | None:
    """The C++ compiler: ``CXX`` or the usual names."""
    candidates = (os.environ.get("CXX"), "g++", "c++", "clang++")
    return next((path for name in candidates if name and (path := shutil.which(name))), None)


def make_plan(compiler: str, directory: Path) -> BuildPlan:
    """How to compile for this torch and this Python."""
    torch_root = Path(torch.__file__).parent
    library = torch_root / "lib"
    command = (
        *(compiler, "-O2", "-g0", "-shared", "-fPIC", "-std=c++20"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch_compat.GLIBCXX_USE_CXX11_ABI)}",
        *(f"-I{path}" for path in (_NATIVE, torch_root / "include", sysconfig.get_path("include"))),
        str(_NATIVE / "tensor_check.cpp"),
        *(f"-L{library}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{library}"),
    )
    key = hashlib.sha256()
    for part in (*command, torch.__version__, str(torch.version.git_version), sys.version):
        key.update(part.encode() + b"\0")
    for name in _SOURCES:
        key.update((_NATIVE / name).read_bytes())
    return BuildPlan(command, directory / f"{_MODULE}-{key.hexdigest()[:24]}.so")


def load(path: Path) -> object:
    """The capsule with the functions of a compiled module."""
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(path))
    spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module.api


def _build_command(plan: BuildPlan, output: str) -> list[str]:
    shell = shutil.which("sh")
    if shell is None:
        return [*plan.command, "-o", output]
    return [shell, "-c", _SCRIPT, "sh", output, str(plan.target), *plan.command]


@contextlib.contextmanager
def _claimed(path: Path) -> Iterator[tuple[int, ...] | None]:
    """The descriptors that hold the lock ``path`` for as long as a process has them; None where another one does.

    Where files cannot be locked (Windows, some network file systems), it is as if nobody else compiled.
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
    """Remove what killed compilers left."""
    for path in directory.glob("*.tmp"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
        except OSError:
            continue


class TensorChecks:
    """The compiled checks of this process: ``poll`` brings them nearer, and switches to them once."""

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
        """Start, look after or finish the build without waiting; True when the compiled checks are in use."""
        if self.compiled or self.why_not is not None or not self._polling.acquire(blocking=False):
            return self.compiled
        try:
            self._step()
        except Exception as error:  # whatever goes wrong here, guards work without
            self.why_not = f"{type(error).__name__}: {error}"
        finally:
            self._polling.release()
        return self.compiled

    def wait(self) -> bool:
        """As ``poll``, until there is a result."""
        while not self.poll() and self.why_not is None:
            if self._process is not None:
                self._process.wait()
            time.sleep(_PAUSE)
        return self.compiled

    def _step(self) -> None:
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
        """Start the compiler, unless another process's is at it or has just ended."""
        plan.target.parent.mkdir(parents=True, exist_ok=True)
        with _claimed(plan.target.with_suffix(".lock")) as lock:
            if lock is not None and not plan.target.exists():
                self._compile(plan, lock)
        if not self._watched:
            self._watched = True
            atexit.register(self._close)
            # A program may compile nothing more: somebody has to notice that the checks are there.
            threading.Thread(target=self.wait, name="fxstack tensor checks", daemon=True).start()

    def _compile(self, plan: BuildPlan, lock: tuple[int, ...]) -> None:
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
        """Wait for what is being tried out: a thread that calls torch while the interpreter ends makes the process abort."""
        if self._polling.acquire(timeout=_LAST_STEP):
            self.why_not = self.why_not or "the process ends"
            self._polling.release()

    def _finished(self, plan: BuildPlan) -> bool:
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
        capsule = load(plan.target)
        prepare_tensors(capsule)
        if not agrees_with_torch():
            prepare_tensors()
            raise RuntimeError("the compiled checks disagree with this torch")
        self.compiled, self.capsule = True, capsule


TENSOR_CHECKS = TensorChecks()
"""The process's one build: which functions the native side uses is a property of the process."""
