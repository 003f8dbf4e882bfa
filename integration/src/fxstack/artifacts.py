"""Compiled code of a process as bytes, so that a process on a machine of the same kind compiles less.

The name of an entry in the disk cache is a hash of everything on which the entry depends, including the
processor and fxstack's sources. So a process never looks up an entry that does not fit it.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fxstack_inductor import options_from_environment
from fxstack_inductor.runtime.cache import INTACT, Cache, used_entries
from fxstack_interchange.user_warnings import warn_user

_NAME = "fxstack-cache-artifacts"
_FORMAT = b"1"


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """``keys``: names of entries of the disk cache. ``size``: the bytes of their files."""

    keys: tuple[str, ...]
    size: int


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """Return (bytes, description) of all kernels and programs that this process read from or wrote to the disk cache.

    Return None if there are none.
    """
    entries = dict(used_entries())
    if not entries:
        return None
    return _pack(entries), _describe(entries)


def export_cache(path: Path, cache: Cache) -> CacheInfo:
    """Write all intact entries of a cache to the file ``path``."""
    entries = {}
    for entry in cache.entries():
        with suppress(FileNotFoundError):  # another process has evicted the entry
            if cache.state(entry.name) == INTACT:
                entries[entry.name] = cache.files(entry.name)
    path.write_bytes(_pack(entries))
    return _describe(entries)


def import_cache(path: Path, cache: Cache) -> CacheInfo:
    """Add to ``cache`` the entries of a file that ``export_cache`` wrote. Return the new entries.

    Import only trusted files.

    Raises:
        ValueError: if the file has another format.
        OSError: if the file or the cache cannot be used.
    """
    return _add_to_cache(path.read_bytes(), cache)


def load_cache_artifacts(artifacts: bytes, cache_dir: Path | None = None) -> CacheInfo | None:
    """Put the result of ``save_cache_artifacts`` into the disk cache. Return the new entries.

    The entries contain native code that will run: load only trusted data. The default of ``cache_dir`` is the
    folder of the environment. For unreadable data, warn and return None.
    """
    options = options_from_environment()
    cache = Cache(Path(cache_dir or options.cache_dir), options.cache_limit)
    try:
        return _add_to_cache(artifacts, cache)
    except (ValueError, OSError) as error:
        warn_user(
            f"load_cache_artifacts: these are no artifacts of this version, or cannot be kept in {cache.root}: {error}",
            UserWarning,
        )
        return None


def _add_to_cache(artifacts: bytes, cache: Cache) -> CacheInfo:
    """Add the entries of ``artifacts`` that the cache lacks.

    Return what was added. Raise ValueError if the bytes cannot be read.
    """
    try:
        entries = _unpack(artifacts)
    except (KeyError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise ValueError(str(error)) from error
    return _describe({key: files for key, files in entries.items() if cache.put(key, files)})


def _pack(entries: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """Return entries as a ZIP file: a member for the format, then one for each file of an entry."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(_NAME, _FORMAT)
        for key, files in entries.items():
            for name, content in files.items():
                packed.writestr(f"{key}/{name}", content)
    return buffer.getvalue()


def _unpack(artifacts: bytes) -> Mapping[str, dict[str, bytes]]:
    """Return the entries in bytes that ``_pack`` made: key -> file name -> content.

    Skip all other members of the ZIP file.
    """
    entries: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
    with zipfile.ZipFile(io.BytesIO(artifacts)) as packed:
        if packed.read(_NAME) != _FORMAT:
            raise ValueError("another format")
        for path in packed.namelist():
            key, _, name = path.partition("/")
            if path != _NAME and len(key) == 64 and set(key) <= set("0123456789abcdef"):
                entries[key][name] = packed.read(path)
    return entries


def _describe(entries: Mapping[str, Mapping[str, bytes]]) -> CacheInfo:
    size = sum(len(content) for files in entries.values() for content in files.values())
    return CacheInfo(tuple(entries), size)
