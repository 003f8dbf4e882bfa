"""Compiled graphs in the disk cache, beside the kernels that they are made of: what ``compile_graph`` gave, without its graph."""

from __future__ import annotations

import json
import logging
import platform
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxstack_inductor.errors import CompilerFailedError
from fxstack_inductor.failures import run_by_aten
from fxstack_inductor.runtime.cache import Cache
from fxstack_inductor.runtime.loader import writable
from fxstack_inductor.targets.c_artifact import image_from_json, image_to_json, link
from fxstack_inductor.targets.c_target import native_refusal
from fxstack_interchange import SaveError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule

    from fxstack_inductor.failures import Failure
    from fxstack_inductor.options import InductorOptions

logger = logging.getLogger(__name__)
NOT_IN_KEYS = ("cache_dir", "cache_limit", "use_cache", "repro_dir", "raise_failures")
"""Options that change nothing of what is compiled."""


class ProgramCache:
    """Documents of JSON in the cache directory of ``options``, under the same bound; compiled graphs as parts of them."""

    def __init__(self, options: InductorOptions) -> None:
        self.options = options
        self.cache = Cache(Path(options.cache_dir), options.cache_limit)

    def identity(self) -> str:
        """Everything that a compiled graph depends on beside the graph: options, this Python, what programs are written in."""
        chosen = {k: v for k, v in asdict(self.options).items() if k not in NOT_IN_KEYS}
        host = native_refusal(self.options)
        return repr((chosen, host, sys.version_info[:3], platform.machine(), sys.byteorder))

    def read(self, key: str) -> Any:
        """The document under ``key``; None if there is none that is intact and this user's own."""
        found = self.cache.find(self.cache.key("program", key))
        if found is None:
            return None
        try:
            return json.loads(found.read_text())
        except (OSError, ValueError) as error:
            logger.warning("program %s on disk cannot be read: %s", key[:12], error)
            return None

    def write(self, key: str, document: object) -> None:
        """Keep a document in the place of an older one; without a directory to write to it is not kept."""
        if not writable(self.cache.root):
            return
        own = self.cache.key("program", key)
        text = json.dumps(document, separators=(",", ":"))
        try:
            shutil.rmtree(self.cache.directory(own), ignore_errors=True)
            self.cache.build(own, "a compiled program, as JSON", lambda _, path: _write(path, text))
        except OSError as error:
            logger.warning("program %s is not kept on disk: %s", key[:12], error)

    def pack(self, compiled: Callable[..., Any]) -> Any:
        """A result of ``compile_graph`` as JSON; None if it has no such form."""
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
        """The callable again; ``graph`` makes what it was compiled from, if that is needed after all.

        ``on_failure`` as for ``compile_graph``.

        Raises:
            LoadError: the record is malformed.
            NoCompilerError: its kernels are not in the cache any more, and there is no C compiler.
        """
        image = image_from_json(record)
        try:
            return link(image, self.options, graph)
        except CompilerFailedError as error:  # of another compiler than the one that made it
            if on_failure is None or self.options.raise_failures:
                raise
            return run_by_aten(graph(), error, on_failure)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
