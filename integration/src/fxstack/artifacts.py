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
from dataclasses import dataclass
from pathlib import Path

from fxstack_inductor import options_from_environment
from fxstack_inductor.runtime.cache import Cache, used_entries
from fxstack_interchange.user_warnings import warn_user

_NAME = "fxstack-cache-artifacts"
_FORMAT = b"1"


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """``keys``: names of entries of the disk cache. ``size``: the bytes of their files."""

    keys: tuple[str, ...]
    size: int


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """Return all kernels and programs that this process read from or wrote to the disk cache, or None."""
    found = dict(used_entries())
    if not found:
        return None
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(_NAME, _FORMAT)
        for key, files in found.items():
            for name, content in files.items():
                packed.writestr(f"{key}/{name}", content)
    return buffer.getvalue(), _info(found)


def load_cache_artifacts(artifacts: bytes, cache_dir: Path | None = None) -> CacheInfo | None:
    """Put the result of ``save_cache_artifacts`` into the disk cache. Return the entries that are new.

    The entries contain native code that will run: load only trusted data. ``cache_dir`` is that of the
    environment by default. Unreadable data gives a warning, and None.
    """
    options = options_from_environment()
    cache = Cache(Path(cache_dir or options.cache_dir), options.cache_limit)
    try:
        entries = _unpacked(artifacts)
        return _info({key: files for key, files in entries.items() if cache.put(key, files)})
    except (ValueError, KeyError, OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        warn_user(
            f"load_cache_artifacts: these are no artifacts of this version, or cannot be kept in {cache.root}: {error}",
            UserWarning,
        )
        return None


def _unpacked(artifacts: bytes) -> Mapping[str, dict[str, bytes]]:
    entries: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
    with zipfile.ZipFile(io.BytesIO(artifacts)) as packed:
        if packed.read(_NAME) != _FORMAT:
            raise ValueError("another format")
        for path in packed.namelist():
            key, _, name = path.partition("/")
            if path != _NAME and len(key) == 64 and set(key) <= set("0123456789abcdef"):
                entries[key][name] = packed.read(path)
    return entries


def _info(entries: Mapping[str, Mapping[str, bytes]]) -> CacheInfo:
    size = sum(len(content) for files in entries.values() for content in files.values())
    return CacheInfo(tuple(entries), size)
