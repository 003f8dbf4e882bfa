"""The file: an uncompressed ZIP archive with two members. The graph determines every byte.

``graph.json`` is the canonical JSON document. ``constants.safetensors`` holds the bytes of the constants.
Ordinary tools can open both. The reader checks every size against the limits before it allocates memory.
"""

from __future__ import annotations

import errno
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fxstack_interchange.format.errors import LoadError

DOCUMENT = "graph.json"
CONSTANTS = "constants.safetensors"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a reader: maximum bytes of the document, bytes of the constants, and number of nodes."""

    document_bytes: int = 256 * 2**20
    constants_bytes: int = 16 * 2**30
    nodes: int = 1_000_000


def canonical_json(document: object) -> bytes:
    """Return the canonical JSON text of a document: sorted keys, no spaces, ASCII, no NaN."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def pack(document: bytes, constants: bytes) -> bytes:
    """Return the bytes of a file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in ((DOCUMENT, document), (CONSTANTS, constants)):
            member = zipfile.ZipInfo(name, _EPOCH)
            # By default zipfile records the platform, so the bytes would differ between platforms.
            member.create_system = 3
            member.external_attr = 0o644 << 16
            archive.writestr(member, data)
    return buffer.getvalue()


def unpack(path: Path, limits: Limits) -> tuple[Any, bytes]:
    """Return the parsed document and the bytes of the constants.

    Raises:
        LoadError: the file is not an archive of this format, is damaged, or exceeds a limit.
        OSError: the file cannot be read.
    """
    name = str(path)[-100:]
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(archive.infolist(), path.stat().st_size, limits)
            document, constants = archive.read(DOCUMENT), archive.read(CONSTANTS)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        # A damaged archive names a place before the file's begin.
        if isinstance(error, LoadError) or (isinstance(error, OSError) and error.errno != errno.EINVAL):
            raise
        raise LoadError(f"{name} is not an interchange file, or is truncated: {error}") from error
    try:
        return json.loads(document, parse_constant=_no_constant, object_pairs_hook=_unique), constants
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{name}: {DOCUMENT} is not valid JSON: {error}") from error


def _check_members(members: list[zipfile.ZipInfo], file_bytes: int, limits: Limits) -> None:
    """Raise LoadError unless the archive has the two members of a file, not compressed and within the limits.

    Runs before any member is read.
    """
    names = [member.filename for member in members]
    if sorted(names) != sorted((DOCUMENT, CONSTANTS)):
        raise LoadError(f"an interchange file holds {DOCUMENT} and {CONSTANTS}, this one {names[:5]}")
    allowed = {DOCUMENT: limits.document_bytes, CONSTANTS: limits.constants_bytes}
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise LoadError(f"member {member.filename!r} is compressed or encrypted; it must be stored")
        if member.file_size > allowed[member.filename]:
            raise LoadError(
                f"member {member.filename!r} has {member.file_size} bytes, over the limit of "
                f"{allowed[member.filename]}; pass larger Limits if the file is trusted"
            )
    if sum(member.file_size for member in members) > file_bytes:
        raise LoadError("the members claim more bytes than the file has")


def _no_constant(text: str) -> Any:
    """Refuse ``NaN`` and infinities in a document. ``json.loads`` calls this function for them."""
    raise ValueError(f"{text} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object's pairs as a dict.

    ``json.loads`` calls this function. Raise ValueError for a key that occurs twice.
    """
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicated key {next(n for n in names if names.count(n) > 1)!r}")
    return result
