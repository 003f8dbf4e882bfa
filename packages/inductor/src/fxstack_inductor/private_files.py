"""Files that only their owner can write, opened one folder after the other and without following links.

Code from these files runs in this process. So the owner, the mode and the type of each opened file are read
from its descriptor, which another user cannot exchange.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a named pipe does not block
_DESCRIPTORS = Path("/proc/self/fd")
_NUMBERS = count(1)
REMOVING = ".removing-"
"""Prefix of the names of folders that are being removed."""


class NotPrivateError(OSError):
    """Other users can write or own a file or folder; the text names it and the reason."""


@contextmanager
def opened(name: str | Path, inside: int | None = None, *, folder: bool = False) -> Iterator[int]:
    """Open a file, or a ``folder``. With ``inside``, a folder's descriptor, ``name`` may not be a link.

    Raises:
        NotPrivateError: another user can write the file or folder, or owns it (except root), or a file is not
            regular.
        OSError: the file or folder cannot be opened.
    """
    flags = FOLDER | (os.O_NOFOLLOW if inside is not None else 0) if folder else _FILE
    descriptor = os.open(name, flags, dir_fd=inside)
    try:
        status = os.fstat(descriptor)
        if not (folder or stat.S_ISREG(status.st_mode)):
            raise NotPrivateError(f"{name} is not a regular file")
        if status.st_uid not in {0, os.geteuid()}:
            raise NotPrivateError(f"{name} belongs to another user, number {status.st_uid}")
        if status.st_mode & 0o022:
            mode = stat.S_IMODE(status.st_mode)
            raise NotPrivateError(f"other users can write {name}, mode {mode:o}: run chmod go-w on it")
        yield descriptor
    finally:
        os.close(descriptor)


def read_all(descriptor: int) -> bytes:
    """Return the contents of an open file; the descriptor stays open."""
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()


def make_folder(path: Path) -> None:
    """Make a folder and the missing folders around it, for this user alone."""
    for missing in reversed([one for one in (path, *path.parents) if not one.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def remove(path: Path) -> None:
    """Remove a folder with its contents; do nothing if it does not exist, or if the folder or its parent is a link."""
    with suppress(OSError):
        inside = os.open(path.parent, FOLDER | os.O_NOFOLLOW)
        try:
            remove_inside(path.name, inside)
        finally:
            os.close(inside)


def remove_inside(name: str, inside: int) -> None:
    """Remove the folder ``name`` in the opened folder ``inside``, after renaming it.

    The renaming hides the folder at once, so nobody sees a part of it even if this process is killed
    meanwhile.
    """
    with suppress(OSError):
        other = f"{REMOVING}{secrets.token_hex(8)}"
        os.rename(name, other, src_dir_fd=inside, dst_dir_fd=inside)
        shutil.rmtree(other, ignore_errors=True, dir_fd=inside)


def load(descriptor: int, path: Path) -> ctypes.CDLL:
    """Load the kernel library that ``descriptor`` has open. Without ``/proc``, load it by ``path``.

    The dynamic loader returns an older library for a name that it has seen, and the system uses the numbers
    of closed descriptors again. So each library gets a spelling of its own: ``/`` and ``/.`` are the digits
    of a number.
    """
    if not _DESCRIPTORS.is_dir():
        return ctypes.CDLL(str(path))
    digits = f"{next(_NUMBERS):b}".replace("1", "/.").replace("0", "/")
    return ctypes.CDLL(f"{_DESCRIPTORS}{digits}/{descriptor}")
