"""Compiled kernels on disk, by content.

An entry is a directory named by the hash of everything that decides its contents. The entry holds the C
source, the shared library, and ``entry.json`` with the entry's name and the library's hash. A writer fills a
temporary directory and renames it, so a reader sees a whole entry or none, even if the writer dies. Two
writers of one entry write equal contents; the second writer's result is dropped. An entry that does not match
its record, or that other users can write, is removed and rebuilt; before its files are deleted, it is renamed.
Only folders whose names are keys are removed. What a process leaves that is killed while it writes or removes an
entry has another name; an eviction at least an hour later deletes it. A read-only directory is only read.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from filelock import FileLock, Timeout

from fxstack_inductor import private_files
from fxstack_inductor.private_files import REMOVING, make_folder, opened, read_all, remove, remove_inside

T = TypeVar("T")
FORMAT = 2
"""The version of the layout of an entry; another version is another key."""
LIBRARY = "kernels.so"
SOURCE = "kernels.c"
ENTRY = "entry.json"
FILES = (SOURCE, LIBRARY, ENTRY)
WRITING = ".writing-"
"""The begin of the names of folders that are being written."""
INTACT, DAMAGED, OTHER_VERSION, GONE = "intact", "damaged", "of another version", "gone"
"""States of an entry. ``GONE``: another process has removed it just now."""
_OF_THE_MOMENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)
"""Errors that say nothing about an entry."""
CHECKED = ".checked"
"""A file whose modification time is the last check for eviction."""
_MINUTE = 60
_UNCHECKED: dict[Path, int] = {}
"""Bytes that this process has written since the last check, by directory."""
_USED: Final[dict[Path, dict[str, None]]] = {}
"""Keys of the entries that this process has read or written, in order, by directory."""


@dataclass(frozen=True, slots=True)
class Cache:
    """The entries in the directory ``root``, of at most ``limit`` bytes together."""

    root: Path
    limit: int

    @staticmethod
    def key(*parts: str) -> str:
        """Return the key of an entry: the hash, as 64 hexadecimal digits, of everything that decides its contents."""
        digest = hashlib.sha256(f"fxstack-inductor cache {FORMAT}".encode())
        for part in parts:
            digest.update(f"\0{len(part)}\0".encode())
            digest.update(part.encode())
        return digest.hexdigest()

    def directory(self, key: str) -> Path:
        """Return the folder of an entry: the key, in a folder of its first two digits."""
        return self.root / key[:2] / key

    def find(self, key: str) -> bytes | None:
        """Return the contents of the library of an intact entry, or None; remove a damaged entry.

        Raises:
            OSError: the cache cannot be read, or other users can write to it.
        """
        return self._use(key, lambda _, content: content)

    def load(self, key: str) -> ctypes.CDLL | None:
        """Return the loaded library of an intact entry, or None; like ``find``, remove a damaged entry."""
        path = self.directory(key) / LIBRARY
        return self._use(key, lambda descriptor, _: private_files.load(descriptor, path))

    def _use(self, key: str, use: Callable[[int, bytes], T]) -> T | None:
        """Return ``use(descriptor, content)`` for the library of an intact entry; None without one.

        A damaged entry is removed.
        """
        with suppress(FileNotFoundError), self._around(key) as inside, ExitStack() as stack:
            try:
                entry = stack.enter_context(opened(key, inside, folder=True))
                library = stack.enter_context(opened(LIBRARY, entry))
                with opened(ENTRY, entry) as record:
                    files = {LIBRARY: read_all(library), ENTRY: read_all(record)}
                intact = _is_whole(key, files)
            except OSError as error:
                if error.errno in _OF_THE_MOMENT:
                    raise
                intact = False
            if intact:
                with suppress(OSError):  # a read-only directory, or an entry evicted just now
                    os.utime(entry)
                self._note(key)
                return use(library, files[LIBRARY])
            remove_inside(key, inside)
        return None

    @contextmanager
    def _around(self, key: str) -> Iterator[int]:
        """Open the folder ``root/key[:2]``, which holds the entry: yield its descriptor, for access inside it."""
        with opened(self.root, folder=True) as root, opened(key[:2], root, folder=True) as inside:
            yield inside

    def build(self, key: str, source: str, compile_: Callable[[Path, Path], None]) -> bytes:
        """Return the contents of the library for ``key``, compiled from ``source`` unless it exists."""
        if (found := self.find(key)) is not None:
            return found
        directory = self.directory(key)
        make_folder(directory.parent)
        temporary = Path(tempfile.mkdtemp(prefix=WRITING, dir=self.root))
        try:
            (temporary / SOURCE).write_text(source, encoding="utf-8")
            compile_(temporary / SOURCE, temporary / LIBRARY)
            content = (temporary / LIBRARY).read_bytes()
            record = {"format": FORMAT, "key": key, "sha256": hashlib.sha256(content).hexdigest()}
            (temporary / ENTRY).write_text(json.dumps(record))
            for name in FILES:
                (temporary / name).chmod(0o600)
            size = entry_size(temporary)
            try:
                with self._around(key) as inside:
                    os.rename(temporary, key, dst_dir_fd=inside)
            except OSError:
                # Another process finished first; its entry has the same contents.
                if self.find(key) is None:
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._grown_by(size)
        self._note(key)
        return content

    def _note(self, key: str) -> None:
        """Record the use of an entry by this process, for ``used_entries``."""
        _USED.setdefault(self.root, {})[key] = None

    def files(self, key: str) -> dict[str, bytes]:
        """Return the contents of an entry's files, by file name."""
        files = {}
        with self._around(key) as inside, opened(key, inside, folder=True) as entry:
            for name in FILES:
                with opened(name, entry) as file:
                    files[name] = read_all(file)
        return files

    def state(self, key: str) -> str:
        """Return the state of an entry: ``INTACT``, ``DAMAGED``, ``OTHER_VERSION`` or ``GONE``.

        Raises:
            OSError: the process has too many files open, or the disk fails.
        """
        try:
            files = self.files(key)
        except OSError as error:
            if error.errno in _OF_THE_MOMENT:
                raise
            return DAMAGED if os.path.lexists(self.directory(key)) else GONE
        if _is_whole(key, files):
            return INTACT
        return DAMAGED if _format_of(files) == FORMAT else OTHER_VERSION

    def put(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Add an entry from ``files`` of another cache; return whether it is new: intact, and not here before."""
        if self.find(key) is not None or SOURCE not in files or not _is_whole(key, files):
            return False

        def copy(_: Path, library: Path) -> None:
            library.write_bytes(files[LIBRARY])

        self.build(key, files[SOURCE].decode(), copy)
        return True

    def _grown_by(self, size: int) -> None:
        """Count ``size`` written bytes; evict after a twentieth of the limit, or a minute after the last check.

        A check scans all files, so it must be rare.
        """
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
        """Return the folders of all entries."""
        parents = _folders(self.root, "[0-9a-f]{2}")
        return [path for parent in parents for path in _folders(parent, f"{parent.name}[0-9a-f]{{62}}")]

    def left_behind(self, age: float = 60 * _MINUTE) -> list[Path]:
        """Return what killed processes left while they wrote or removed: directories older than ``age`` seconds."""
        root = self.root.resolve()
        pattern = rf"({re.escape(WRITING)}|{re.escape(REMOVING)})\w+"
        paths = [
            path for folder in (root, *_folders(root, "[0-9a-f]{2}")) for path in _folders(folder, pattern)
        ]
        return [path for path in paths if time.time() - modified(path) >= age]

    def size(self) -> int:
        """Return the bytes of all entries."""
        return sum(entry_size(path) for path in self.entries())

    def evict(self) -> None:
        """Remove the least recently used entries until the rest fits in ``limit``; one process at a time."""
        try:
            with FileLock(self.root / ".lock", timeout=0):
                self._evict()
        except Timeout:
            return

    def _evict(self) -> None:
        """Remove what killed processes left, then the oldest entries, until the rest fits."""
        for path in self.left_behind():
            remove(path)
        sized = [(modified(path), entry_size(path), path) for path in self.entries()]
        excess = sum(size for _, size, _ in sized) - self.limit
        for _, size, path in sorted(sized):
            if excess <= 0:
                break
            remove(path)
            excess -= size

    def clear(self) -> None:
        """Remove all entries, and what killed processes left."""
        for path in [*self.entries(), *self.left_behind(0)]:
            remove(path)


def used_entries() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield keys and files of the existing entries that this process has used, to copy them to another cache."""
    for root, keys in [*_USED.items()]:
        for key in [*keys]:
            with suppress(OSError):
                yield key, Cache(root, 0).files(key)


def _is_whole(key: str, files: Mapping[str, bytes]) -> bool:
    """Whether the record of an entry agrees with the entry's key and with the hash of its library."""
    try:
        digest = hashlib.sha256(files[LIBRARY]).hexdigest()
        record = json.loads(files[ENTRY])
        return (record["key"], record["sha256"]) == (key, digest)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _format_of(files: Mapping[str, bytes]) -> object:
    """Return the format in the record of an entry that is not whole; the present format without a readable record."""
    try:
        return json.loads(files[ENTRY])["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return FORMAT


def _folders(parent: Path, pattern: str) -> list[Path]:
    """Return the folders in ``parent`` whose names match ``pattern``, without links."""
    try:
        with os.scandir(parent) as entries:
            named = [entry for entry in entries if re.fullmatch(pattern, entry.name)]
            return [Path(entry.path) for entry in named if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def entry_size(directory: Path) -> int:
    """Return the total bytes of an entry's files; 0 if another process has removed it."""
    try:
        with os.scandir(directory) as files:
            return sum(file.stat(follow_symlinks=False).st_size for file in files)
    except FileNotFoundError:
        return 0


def modified(directory: Path) -> float:
    """Return when an entry was last used, in seconds of Unix time; now if another process has removed it."""
    try:
        return directory.stat().st_mtime
    except FileNotFoundError:
        return time.time()
