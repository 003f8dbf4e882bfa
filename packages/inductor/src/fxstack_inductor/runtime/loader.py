"""Compile C source and load its functions."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from fxstack_inductor.errors import CompilerFailedError, NoCompilerError
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.private_files import make_folder, opened
from fxstack_inductor.runtime.cache import LIBRARY, SOURCE, Cache
from fxstack_inductor.runtime.toolchain import Toolchain, find_toolchain
from fxstack_interchange.user_warnings import warn_user

T = TypeVar("T")
_TOLD: Final[set[tuple[str, str]]] = set()
"""Directories and reasons of which this process has warned."""


def load_functions(source: str, arguments: Mapping[str, int], options: InductorOptions) -> dict[str, Any]:
    """Return the functions of ``source`` by name.

    ``arguments``: how many pointers and 64-bit integers each takes, by name.
    """
    return functions_of(load_library(source, options), arguments)


def load_library(source: str, options: InductorOptions) -> ctypes.CDLL:
    """Compile ``source``, or find it in the disk cache, and load it.

    If the cache cannot hold the library (a read-only directory, a full disk, an entry that another process
    removes), the source is compiled for this process alone, with a warning.
    """
    toolchain = find_toolchain(options)
    failed: CompilerFailedError | None = None
    try:
        found = from_cache((source, toolchain.identity), source, toolchain.compile, options, Cache.load)
        if found is not None:
            return found
    except CompilerFailedError as error:
        failed = error
    try:
        library = _compiled_for_now(source, toolchain)
    except OSError as error:
        raise NoCompilerError(
            f"compiled kernels can be neither kept nor loaded ({error}): name a directory that can be written, on a disk "
            "with room that is not mounted noexec, in the environment variable FXSTACK_INDUCTOR_CACHE_DIR or TMPDIR"
        ) from error
    if failed is not None:
        # Compilers fail on full disks, too. The source compiles elsewhere, so the directory is the cause.
        not_kept(options.cache_dir, failed.reason)
    return library


def from_cache(
    parts: Sequence[str],
    source: str,
    compile_: Callable[[Path, Path], None],
    options: InductorOptions,
    read: Callable[[Cache, str], T | None],
) -> T | None:
    """Return ``read(cache, key)`` for the entry of ``parts``, built first if it is missing.

    None without a usable cache: the caller then compiles for itself.
    """
    if not options.use_cache:
        return None
    root = Path(options.cache_dir)
    cache = Cache(root, options.cache_limit)
    key = cache.key(*parts)
    try:
        if (entry := read(cache, key)) is not None or not writable(root):
            return entry
        cache.build(key, source, compile_)
        return read(cache, key)
    except OSError as error:
        not_kept(root, str(error))
        return None


def _compiled_for_now(source: str, toolchain: Toolchain) -> ctypes.CDLL:
    """Compile ``source`` outside of the cache and load it."""
    with tempfile.TemporaryDirectory(prefix="fxstack-") as name:
        directory = Path(name)
        (directory / SOURCE).write_text(source, encoding="utf-8")
        toolchain.compile(directory / SOURCE, directory / LIBRARY)
        # The file may be deleted after it is mapped.
        return ctypes.CDLL(str(directory / LIBRARY))


def writable(directory: Path) -> bool:
    """Return whether ``directory`` can hold a cache; warn if it cannot. Compilation works without a cache."""
    try:
        make_folder(directory)
        with opened(directory, folder=True):
            if os.access(directory, os.W_OK | os.X_OK):
                return True
        reason = "it is read-only"
    except OSError as error:
        reason = str(error)
    not_kept(directory, reason)
    return False


def write_whole(path: Path, text: str) -> None:
    """Write a file; a reader sees the whole file or none, even if the writer dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).replace(path)


def not_kept(directory: Path, reason: str) -> None:
    """Warn, once in a process for each ``reason``, that nothing is kept in ``directory``."""
    if (str(directory), reason) not in _TOLD:
        _TOLD.add((str(directory), reason))
        warn_user(
            f"compiled kernels are not kept in {shortened(directory)} ({shortened(reason)}), so that each process compiles "
            "them again; name another directory in the environment variable FXSTACK_INDUCTOR_CACHE_DIR",
            UserWarning,
        )


def shortened(value: object) -> str:
    """Return a value as text; long text loses its middle."""
    text = str(value)
    return text if len(text) <= 300 else f"{text[:150]}...{text[-150:]}"


def functions_of(library: ctypes.CDLL, arguments: Mapping[str, int]) -> dict[str, Any]:
    """Return functions of ``library``; ``arguments`` gives the number of 64-bit arguments by name."""
    functions = {}
    for name, count in arguments.items():
        function = library[name]
        function.argtypes = [ctypes.c_int64] * count
        function.restype = None
        functions[name] = function
    return functions
