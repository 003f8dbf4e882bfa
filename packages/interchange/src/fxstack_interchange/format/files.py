"""``save`` and ``load``: a stage graph as a file."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import Any

from fxstack_interchange.format.encoding.constants import ConstantWriter, read_constants
from fxstack_interchange.format.encoding.container import Limits, canonical_json, pack, unpack
from fxstack_interchange.format.encoding.document import FORMAT, VERSION, from_document, to_document
from fxstack_interchange.format.encoding.schema import check_document
from fxstack_interchange.format.errors import LoadError, checking
from fxstack_interchange.format.signature import StageGraph
from fxstack_interchange.format.verify import CORRESPONDENCE, verify

_DEFAULT_LIMITS = Limits()


def save(graph: StageGraph, path: str | os.PathLike[str]) -> None:
    """Write ``graph`` to ``path``. The same graph always gives the same bytes.

    The write is atomic: the file appears complete or not at all.

    Raises:
        SaveError: the graph holds a value that the format cannot express. The text names the node.
        VerificationError: graph and signature do not correspond.
        OSError: the file cannot be written.
    """
    target = Path(path)
    data = to_bytes(graph)
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        partial.write_bytes(data)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def to_bytes(graph: StageGraph) -> bytes:
    """Return the bytes of the file that ``save`` writes."""
    # ``load`` checks the same rules, so ``load`` accepts every file that ``save`` writes.
    verify(graph, CORRESPONDENCE)
    constants = ConstantWriter()
    document = to_document(graph, constants)
    return pack(canonical_json(document), constants.data())


def load(
    path: str | os.PathLike[str], *, map_location: str | None = None, limits: Limits = _DEFAULT_LIMITS
) -> StageGraph:
    """Read the graph of a file. Values in its metadata are fake, with their own fake mode and ShapeEnv.

    Loading does not execute, unpickle or trace anything in the file. Running the loaded graph runs the
    operators that it names, so run only graphs that you trust.

    ``map_location`` puts constants on another device than the device that they were saved from.

    Raises:
        LoadError: the file is damaged, of another version, or violates the format. The text names the
            defect.
        OSError: the file cannot be read.
    """
    with checking("container", (OSError,)):
        document, data = unpack(Path(path), limits)
    with checking("version"):
        _check_version(document)
    with checking("structure"):
        check_document(document)
        _check_count(document["graph"], limits)
    with checking("constants"):
        constants = read_constants(document["constants"], data, map_location)
    with checking("graph"):
        graph = from_document(document, constants)
    with checking("signature and graph of the file do not fit together"):
        verify(graph, CORRESPONDENCE)
    return graph


_VERSION = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})")


def _check_version(document: object) -> None:
    """Raise LoadError unless this reader understands the document's format and version."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise LoadError(f"not an interchange document: its format is not {FORMAT!r}")
    version = document.get("version")
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise LoadError(f"malformed format version {version!r:.100}")
    major, minor = int(match[1]), int(match[2])
    if major != VERSION[0] or minor > VERSION[1]:
        raise LoadError(
            f"the file has format version {version}, this reader understands {VERSION[0]}.0 to "
            f"{VERSION[0]}.{VERSION[1]}; read it with a matching release of fxstack-interchange"
        )


def _check_count(graph: dict[str, Any], limits: Limits) -> None:
    """Raise LoadError if the document's graphs have more nodes in total than the limit."""
    pending, count = [graph], 0
    while pending:
        record = pending.pop()
        count += len(record["nodes"])
        pending += [a["graph"] for a in record["attributes"].values() if "graph" in a]
    if count > limits.nodes:
        raise LoadError(f"the file has {count} nodes, over the limit of {limits.nodes}")
