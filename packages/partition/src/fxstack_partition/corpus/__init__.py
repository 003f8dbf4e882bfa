"""Twenty joint graphs of real models, static and symbolic, to compare partitioners without a model.

The files are in the interchange format, compressed with xz; ``integration/benchmarks/make_corpus.py`` writes
them. The folder imports ``fxstack_interchange`` alone. Begin with ``load``.
"""

from __future__ import annotations

import lzma
import tempfile
from importlib import resources
from pathlib import Path

from fxstack_interchange import StageGraph
from fxstack_interchange import load as load_file

_SUFFIX = ".fxg.xz"


def names() -> tuple[str, ...]:
    """Return the names of the corpus, sorted."""
    files = resources.files(__package__).iterdir()
    return tuple(sorted(f.name.removesuffix(_SUFFIX) for f in files if f.name.endswith(_SUFFIX)))


def load(name: str) -> StageGraph:
    """Return the joint graph ``name`` of the corpus. Each call builds a new one.

    Raises:
        LookupError: if no graph of the corpus has this name.
    """
    if name not in names():
        msg = f"the corpus has no graph {name!r}; it has {', '.join(names())}"
        raise LookupError(msg)
    return load_compressed(resources.files(__package__).joinpath(name + _SUFFIX).read_bytes())


def load_any(path: str | Path) -> StageGraph:
    """Return the graph of an interchange file, compressed with xz if its name ends in ``.xz``."""
    file = Path(path)
    return load_compressed(file.read_bytes()) if file.suffix == ".xz" else load_file(file)


def load_compressed(data: bytes) -> StageGraph:
    """Return the joint graph in the bytes of a compressed interchange file."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "graph.fxg"
        plain.write_bytes(lzma.decompress(data))
        return load_file(plain)
