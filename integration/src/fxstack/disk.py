"""The store of compiled programs on disk: which programs may be stored, and the key of the facts that they depend on.

A program found there is neither traced nor lowered again: its wrapper is made from records, its compiled
graphs are linked.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

import fxstack_capture
import fxstack_functionalize
import fxstack_inductor
import fxstack_interchange
import fxstack_partition
from fxstack import torch_compat
from fxstack.log import LISTENERS, CompileLog
from fxstack.refusals import can_repeat
from fxstack.settings import CompileOptions
from fxstack_capture.guards.torch_state import GETTERS
from fxstack_capture.torch_side.global_state.state import ATTENTION_FLAGS
from fxstack_functionalize.disk.code import CodeReader
from fxstack_inductor.compiled_store import ProgramCache
from fxstack_inductor.targets.all_targets import target_named
from fxstack_interchange import SaveError
from fxstack_partition.registry import REGISTRY

logger = logging.getLogger(__name__)
PACKAGES = (fxstack_capture, fxstack_functionalize, fxstack_inductor, fxstack_interchange, fxstack_partition)
OF_THE_CALL = frozenset({"number of threads", "saved-tensor hooks"})
"""State that compiled programs read at each call."""
MODES = frozenset(
    {
        "torch function disabled for modes",
        "number of torch-function modes",
        "number of torch-dispatch modes",
        "depth of the functorch stack",
    }
)
"""Modes of the program, which may take part in tracing. If any is on, nothing is stored."""


@dataclass(frozen=True)
class ProgramStore:
    """The store for ``aot``: the programs of ``cache``. Reports go to graph ``number`` of ``log``."""

    cache: ProgramCache
    salt: str
    """A text of all facts outside of the graph on which programs depend (``Store.salt``)."""
    log: CompileLog
    number: int
    repeats: list[bool]
    """Gets for each graph from disk whether it may run twice."""

    def read(self, key: str) -> Any:
        """Return the stored document of a program; None if there is none. The log notes which."""
        document = self.cache.read(key)
        self.log.on_stored(self.number, found=document is not None)
        return document

    def write(self, key: str, document: object) -> None:
        self.cache.write(key, document)

    def pack(self, compiled: Callable[..., Any]) -> Any:
        """Return a compiled graph as a record for the disk; None if the graph cannot be stored."""
        packed = self.cache.pack(compiled)
        if packed is None:
            return None
        # A forward from disk is stored again, with the first backward.
        lowered = getattr(compiled, "lowered", None)
        repeats = vars(compiled)["repeats"] if lowered is None else can_repeat(lowered.graph)
        return {"graph": packed, "repeats": repeats}

    def unpack(self, record: Any, graph: Callable[[], torch.fx.GraphModule]) -> Callable[..., Any]:
        """Return the callable of a record of ``pack``; ``graph`` makes the graph for a fallback."""
        with self.log.measure("inductor", self.number):
            tell = partial(self.log.on_failure, self.number)
            compiled = self.cache.unpack(record["graph"], graph, tell)
        repeats = bool(record["repeats"])
        if hasattr(compiled, "image"):  # else the graph runs in ATen, and is not stored
            vars(compiled)["repeats"] = repeats
        self.repeats.append(repeats)
        return compiled

    def used(self, remake: Callable[[], object]) -> None:
        self.log.keep_later(remake)


def program_store(
    options: CompileOptions, log: CompileLog, number: int, repeats: list[bool]
) -> ProgramStore | None:
    """Return the store for one captured graph; None if a program would depend on code of the user."""
    inductor = options.inductor
    state = {getter.name: getter.read() for getter in GETTERS if getter.name not in OF_THE_CALL}
    unkept = not inductor.use_cache or inductor.repro_dir is not None
    unkept = unkept or (inductor.target is not None and not target_named(inductor.target).has_images)
    unkept = unkept or any(listener.wants_stages() for listener in LISTENERS)
    if unkept or not sources_hash() or any(state[name] for name in MODES):
        return None
    partitioner = _describe(REGISTRY.get(made) if isinstance(made := options.partitioner, str) else made)
    limits = _describe(
        {
            field.name: getattr(options.partition, field.name)
            for field in fields(options.partition)
            if field.name != "static_inputs"
        }
    )
    if partitioner is None or limits is None:
        return None
    cached = ProgramCache(inductor)
    parts = (
        sources_hash(),
        cached.identity(),
        partitioner,
        limits,
        sorted(options.partition.static_inputs),
        sorted(state.items()),
        [(name, flag()) for name, flag in ATTENTION_FLAGS.items()],
        _arithmetic_settings(),
    )
    return ProgramStore(cached, repr(parts), log, number, repeats)


def _describe(value: object) -> Any:
    """Return a description as JSON of a partitioner or its options; None if code depends on mutable objects."""
    try:
        return CodeReader().describe(value, "the partitioner")
    except SaveError as error:
        logger.debug("nothing is kept on disk: %s", error)
        return None


def _arithmetic_settings() -> tuple[Any, ...]:
    """Return torch's settings for the arithmetic of its own kernels."""
    return (
        torch.get_float32_matmul_precision(),
        torch_compat.get_mkldnn_enabled(),
        torch_compat.get_cudnn_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.backends.cpu.get_cpu_capability(),
        torch.is_anomaly_enabled(),
    )


@cache
def sources_hash() -> str:
    """Return a hash of fxstack's sources ("" if none are found): versions do not identify working copies."""
    digest, has_sources = hashlib.sha256(), False
    for package in PACKAGES:
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*")):
            if path.suffix in {".py", ".h", ".c"}:
                digest.update(path.relative_to(root).as_posix().encode())
                digest.update(path.read_bytes())
                has_sources = True
    return digest.hexdigest() if has_sources else ""
