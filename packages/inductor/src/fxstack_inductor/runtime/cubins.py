"""Machine code of generated Triton kernels: from the disk cache, or compiled, possibly in parallel.

A cache hit does not import Triton, because the import takes longer than the rest of a warm compilation.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fxstack_inductor.errors import TRITON_HINT, CompilerFailedError, TritonMissing
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.cache import Cache
from fxstack_inductor.runtime.loader import from_cache
from fxstack_inductor.tiling.kernels import TritonKernel, TritonSource

Compiler = Callable[[Path, Path, Sequence[dict[str, Any]], int], None]

KERNELS_PER_PROCESS = 3
"""The number of kernels that one process compiles in the time of starting another process."""
WORKER = Path(__file__).with_name("triton_worker.py")


@dataclass(frozen=True, slots=True)
class Cubin:
    """The machine code of one kernel. ``symbol``: its function's name; ``shared``, ``scratch``: bytes of memory.

    ``parameters``: their number, with Triton's scratch pointers. ``threads``: their number in a block.
    """

    symbol: str
    image: bytes
    """The machine code."""
    parameters: int
    threads: int
    shared: int
    scratch: int


def load_cubins(source: TritonSource, capability: int, options: InductorOptions) -> dict[str, Cubin]:
    """Return the kernels of ``source`` by name, for ``sm_<capability>``.

    Raises:
        TritonMissing: the kernels are not in the cache, and Triton is not installed.
        CompilerFailedError: Triton rejects a kernel, which is a defect of this package.
    """
    cubins = _archive(source, capability, options, compile_archive)
    return {name: cubin for name, cubin in cubins.items() if isinstance(cubin, Cubin)}


def compile_each(source: TritonSource, capability: int, options: InductorOptions) -> dict[str, Cubin | str]:
    """Return the kernels by name, with the compiler's message in place of each kernel that Triton rejects.

    Raises:
        TritonMissing: some kernels are not in the cache, and Triton is not installed.
    """
    return _archive(source, capability, options, compile_with_messages)


def _archive(
    source: TritonSource, capability: int, options: InductorOptions, compile_: Compiler
) -> dict[str, Cubin | str]:
    """Return the kernels from the disk cache; if the entry is missing, ``compile_`` writes it."""
    entries = list({k.name: request_entry(k) for k in source.functions.values()}.values())
    identity = json.dumps([triton_version(), capability, entries], sort_keys=True)
    kind = "some" if compile_ is compile_with_messages else "all"
    parts = ("cubins", source.text, identity, kind)

    def compiled(text: Path, output: Path) -> None:
        compile_(text, output, entries, capability)

    archive = from_cache(parts, source.text, compiled, options, Cache.find)
    if archive is None:
        with tempfile.TemporaryDirectory(prefix="fxstack-") as folder:
            archive = Cache(Path(folder), options.cache_limit).build(Cache.key(*parts), source.text, compiled)
    return read_archive(io.BytesIO(archive))


def request_entry(kernel: TritonKernel) -> dict[str, Any]:
    """Return the worker's request for one kernel: the argument ``entry`` of ``triton_worker.compile_kernel``."""
    return {
        "name": kernel.name,
        "signature": kernel.signature,
        "constants": kernel.constants,
        "warps": kernel.config.num_warps,
        "stages": kernel.config.num_stages,
        "debug": kernel.kernel.checked,
    }


def triton_version() -> str:
    """Return the installed Triton's version, without importing Triton if package metadata exists."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        import triton  # noqa: PLC0415 - it may be installed under another name

        return str(triton.__version__)


def compile_archive(text: Path, output: Path, entries: Sequence[dict[str, Any]], capability: int) -> None:
    """Compile ``entries`` of the module in ``text`` and write one archive of all.

    Raises:
        CompilerFailedError: Triton rejects an entry.
    """
    compile_with_messages(text, output, entries, capability)
    for compiled in read_archive(output).values():
        if isinstance(compiled, str):
            raise CompilerFailedError(
                f"Triton failed to compile a generated kernel for sm_{capability}; this is a defect of "
                f"fxstack-inductor, please report it with this output:\n{compiled[-4000:]}",
                compiled.strip().rpartition("\n")[2][:300],
            )


def compile_with_messages(
    text: Path, output: Path, entries: Sequence[dict[str, Any]], capability: int
) -> None:
    """Compile ``entries`` of the module ``text`` into the archive ``output``; a rejected kernel has a message there.

    Up to one process per processor compiles.
    """
    if importlib.util.find_spec("triton") is None:
        raise TritonMissing(TRITON_HINT)
    module = text.with_name("kernels.py")
    module.write_text(text.read_text())
    count = max(1, min(os.cpu_count() or 1, -(-len(entries) // KERNELS_PER_PROCESS)))
    parts = [text.with_name(f"part{k}.zip") for k in range(count)]
    shares = [entries[k::count] for k in range(count)]
    running = [_start(module, share, capability, part) for share, part in zip(shares, parts, strict=True)]
    with zipfile.ZipFile(output, "w") as archive:
        for process, share, part in zip(running, shares, parts, strict=True):
            died = _finish(process)
            if died:  # killed, or failed in a way that Python cannot catch
                for entry in share:
                    archive.writestr(f"{entry['name']}.failed", died)
                continue
            with zipfile.ZipFile(part) as results:
                for name in results.namelist():
                    archive.writestr(name, results.read(name))
            part.unlink()


def _start(
    module: Path, entries: Sequence[dict[str, Any]], capability: int, output: Path
) -> subprocess.Popen[str]:
    """Start a worker process that compiles ``entries`` of the file ``module`` into the archive ``output``."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    process = subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, "-P", str(WORKER)],  # its folder contains module names of the standard library
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    request = {"path": str(module), "entries": entries, "capability": capability, "output": str(output)}
    assert process.stdin is not None
    process.stdin.write(json.dumps(request))
    process.stdin.close()
    process.stdin = None
    return process


def _finish(process: subprocess.Popen[str]) -> str:
    """Wait for the process; return its output if it failed, else an empty string."""
    printed, _ = process.communicate()
    return "" if process.returncode == 0 else printed or f"status {process.returncode}"


def read_archive(path: Path | IO[bytes]) -> dict[str, Cubin | str]:
    """Return, by kernel name, the machine code, or the compiler's message as a text."""
    kernels: dict[str, Cubin | str] = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            kernel, _, kind = name.rpartition(".")
            if kind == "failed":
                kernels[kernel] = archive.read(name).decode()
            if kind == "json":
                image = archive.read(f"{kernel}.cubin")
                kernels[kernel] = Cubin(image=image, **json.loads(archive.read(name)))
    return kernels
