"""Store compiled graphs in the disk cache: results of ``compile_graph`` without the graph."""

from __future__ import annotations

import json
import logging
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from fxstack_inductor.errors import CompilerFailedError
from fxstack_inductor.failures import Failure, run_by_aten
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.private_files import remove
from fxstack_inductor.runtime.cache import Cache
from fxstack_inductor.runtime.loader import not_kept, writable
from fxstack_inductor.targets.c.artifact import image_from_json, image_to_json
from fxstack_inductor.targets.c.load import link
from fxstack_inductor.targets.c.lower import native_refusal
from fxstack_interchange import SaveError

logger = logging.getLogger(__name__)
NOT_IN_KEYS = ("cache_dir", "cache_limit", "use_cache", "repro_dir", "raise_failures")
"""Options that do not change the compiled code."""


class ProgramCache:
    """JSON documents, among them compiled graphs, in the cache directory of ``options``, under its size limit.

    ``fxstack.compile`` keeps its programs here, so that the next process needs no compilation.
    """

    def __init__(self, options: InductorOptions) -> None:
        self.options = options
        self.cache = Cache(Path(options.cache_dir), options.cache_limit)

    def identity(self) -> str:
        """Return the part of a document's key that is not the graph: options, kind of host program, Python
        and machine, as text.
        """
        chosen = {k: v for k, v in asdict(self.options).items() if k not in NOT_IN_KEYS}
        host = native_refusal(self.options)
        return repr((chosen, host, sys.version_info[:3], platform.machine(), sys.byteorder))

    def read(self, key: str) -> Any:
        """Return the document under ``key``, or None if no intact document of this user exists."""
        try:
            text = self.cache.find(self.cache.key("program", key))
            return None if text is None else json.loads(text)
        except OSError as error:
            not_kept(self.cache.root, str(error))
        except (ValueError, RecursionError) as error:
            logger.warning("program %s on disk cannot be read: %s", key[:12], error)
        return None

    def write(self, key: str, document: object) -> None:
        """Store a document in place of an older document; without a writable directory, store nothing."""
        if not writable(self.cache.root):
            return
        directory_key = self.cache.key("program", key)
        text = json.dumps(document, separators=(",", ":"))
        try:
            remove(self.cache.directory(directory_key))
            self.cache.build(directory_key, "a compiled program, as JSON", lambda _, path: _write(path, text))
        except OSError as error:
            not_kept(self.cache.root, str(error))

    def pack(self, compiled: Callable[..., Any]) -> Any:
        """Return a result of ``compile_graph`` as JSON values for ``write``; None if the result has no such form."""
        image = getattr(compiled, "image", None)
        try:
            return None if image is None else image_to_json(image)
        except SaveError as error:
            logger.debug("a compiled graph is not kept on disk: %s", error)
            return None

    def unpack(
        self,
        record: Any,
        graph: Callable[[], GraphModule],
        on_failure: Callable[[Failure], None] | None = None,
    ) -> Callable[..., Any]:
        """Return the callable of a packed record; ``graph`` makes the original graph, if it is needed.

        ``on_failure`` is the argument of ``compile_graph``.

        Raises:
            LoadError: the record is malformed.
            NoCompilerError: the kernels are no longer in the cache, and there is no C compiler.
        """
        image = image_from_json(record)
        try:
            return link(image, self.options, graph)
        except CompilerFailedError as error:  # the C compiler may have changed since
            if on_failure is None or self.options.raise_failures:
                raise
            return run_by_aten(graph(), error, on_failure)


def _write(path: Path, text: str) -> None:
    """Write the document to the path that ``Cache.build`` gives."""
    path.write_text(text)
