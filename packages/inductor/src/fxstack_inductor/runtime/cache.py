"""Compiled kernels on disk, by content.

An entry is a directory named by the hash of everything that decides its contents. The entry holds the C
source, the shared library, and ``entry.json`` with the library's hash. A writer fills a temporary directory
and renames it, so a reader sees a whole entry or none, even if the writer dies. Two writers of one entry
write equal contents; the second writer's result is dropped. An entry whose library does not match its hash is
removed and rebuilt. Remains of killed writers are removed by an eviction at least an hour later. A read-only
directory is only read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

FORMAT = 1
LIBRARY = "kernels.so"
SOURCE = "kernels.c"
ENTRY = "entry.json"
WRITING = ".writing-"
CHECKED = ".checked"
"""A file whose modification time is the last check for eviction."""
_MINUTE = 60
_UNCHECKED: dict[Path, int] = {}
"""Bytes that this process has written since the last check, by directory."""
_USED: Final[dict[Path, dict[str, None]]] = {}
"""Keys of the entries that this process has read or written, in order, by directory."""


@dataclass(frozen=True, slots=True)
class Cache:
    root: Path
    limit: int

    @staticmethod
    def key(*parts: str) -> str:
        digest = hashlib.sha256(f"fxstack-inductor cache {FORMAT}".encode())
        for part in parts:
            digest.update(f"\0{len(part)}\0".encode())
            digest.update(part.encode())
        return digest.hexdigest()

    def directory(self, key: str) -> Path:
        return self.root / key[:2] / key

    def find(self, key: str) -> Path | None:
        """Return the library of a valid entry, or None; remove a damaged entry."""
        directory = self.directory(key)
        try:
            entry = json.loads((directory / ENTRY).read_text())
            intact = entry["sha256"] == file_hash(directory / LIBRARY) and _is_ours(directory)
        except (OSError, ValueError, KeyError, TypeError):
            intact = False
        if intact:
            with suppress(OSError):  # a read-only directory, or an entry evicted just now
                os.utime(directory)
            self._note(key)
            return directory / LIBRARY
        if directory.exists():
            shutil.rmtree(directory, ignore_errors=True)
        return None

    def build(self, key: str, source: str, compile_: Callable[[Path, Path], None]) -> Path:
        """Return the library for ``key``, compiled from ``source`` unless it exists."""
        found = self.find(key)
        if found is not None:
            return found
        directory = self.directory(key)
        directory.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=WRITING, dir=self.root))
        try:
            (temporary / SOURCE).write_text(source)
            compile_(temporary / SOURCE, temporary / LIBRARY)
            entry = {"format": FORMAT, "sha256": file_hash(temporary / LIBRARY)}
            (temporary / ENTRY).write_text(json.dumps(entry))
            size = entry_size(temporary)
            try:
                temporary.rename(directory)
            except OSError:
                # Another process finished first; its entry has the same contents.
                if self.find(key) is None:
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._grown_by(size)
        self._note(key)
        return directory / LIBRARY

    def _note(self, key: str) -> None:
        _USED.setdefault(self.root, {})[key] = None

    def put(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Add an entry from files of another cache; return False if they are damaged or the entry exists."""
        if self.find(key) is not None or not _is_whole(files):
            return False

        def copy(_: Path, library: Path) -> None:
            library.write_bytes(files[LIBRARY])

        self.build(key, files[SOURCE].decode(), copy)
        return True

    def _grown_by(self, size: int) -> None:
        """Evict after a twentieth of the limit was written or after a minute: a check scans all files."""
        unchecked = _UNCHECKED[self.root] = _UNCHECKED.get(self.root, 0) + size
        checked = self.root / CHECKED
        try:
            recent = time.time() - checked.stat().st_mtime < _MINUTE
        except OSError:
            recent = False
        if recent and unchecked * 20 < self.limit:
            return
        _UNCHECKED[self.root] = 0
        with suppress(OSError):  # a full disk, or another process clears the directory
            checked.touch()
            self.evict()

    def entries(self) -> list[Path]:
        return [path for path in self.root.glob("??/*") if path.is_dir()]

    def left_behind(self, age: float = 60 * _MINUTE) -> list[Path]:
        """Return the temporary directories of killed writers: directories older than ``age`` seconds."""
        return [path for path in self.root.glob(WRITING + "*") if time.time() - path.stat().st_mtime >= age]

    def size(self) -> int:
        return sum(entry_size(path) for path in self.entries())

    def evict(self) -> None:
        """Remove the least recently used entries until the rest fits in ``limit``; one process at a time."""
        try:
            with FileLock(self.root / ".lock", timeout=0):
                self._evict()
        except Timeout:
            return

    def _evict(self) -> None:
        for path in self.left_behind():
            shutil.rmtree(path, ignore_errors=True)
        sized = [(path.stat().st_mtime, entry_size(path), path) for path in self.entries()]
        excess = sum(size for _, size, _ in sized) - self.limit
        for _, size, path in sorted(sized):
            if excess <= 0:
                break
            shutil.rmtree(path, ignore_errors=True)
            excess -= size

    def clear(self) -> None:
        for path in [*self.entries(), *self.left_behind(0)]:
            shutil.rmtree(path, ignore_errors=True)


def used_entries() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield keys and files of the existing entries that this process has used."""
    for root, keys in [*_USED.items()]:
        for key in [*keys]:
            directory = Cache(root, 0).directory(key)
            with suppress(OSError):
                yield key, {name: (directory / name).read_bytes() for name in _FILES}


_FILES = (SOURCE, LIBRARY, ENTRY)


def _is_whole(files: Mapping[str, bytes]) -> bool:
    try:
        digest = hashlib.sha256(files[LIBRARY]).hexdigest()
        return bool(json.loads(files[ENTRY])["sha256"] == digest) and SOURCE in files
    except (ValueError, KeyError, TypeError):
        return False


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entry_size(directory: Path) -> int:
    """Return the total bytes of an entry's files."""
    return sum(path.stat().st_size for path in directory.iterdir() if path.is_file())


def _is_ours(directory: Path) -> bool:
    """Whether the entry belongs to this user: code is not loaded from files that other users may write."""
    return not hasattr(os, "getuid") or directory.stat().st_uid == os.getuid()
