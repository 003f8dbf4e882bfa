"""The entry of one program in a store: looked up before tracing, written when all graphs are compiled.

The caller of ``aot`` implements ``Store``: this package knows neither the files of a compiler nor the
contents of a compiled graph.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from torch.fx import GraphModule

from fxstack_functionalize.disk.key import program_key
from fxstack_functionalize.disk.program import Stored, decode_program, encode_program
from fxstack_functionalize.disk.sizes import Sizes
from fxstack_functionalize.options import AotOptions
from fxstack_functionalize.runtime.backward.backwards import Variant
from fxstack_functionalize.runtime.calling import Compiled
from fxstack_functionalize.runtime.plan import TrainingPlan
from fxstack_functionalize.runtime.wrapper import Pair
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.inputs import Captured, TraceRequest
from fxstack_interchange import SaveError


class Store(Protocol):
    """A cache of compiled programs."""

    @property
    def salt(self) -> str:
        """Return a text of all facts outside of this package on which compiled programs depend.

        Examples are options, versions of other packages, and torch's global state. The text is equal in all
        processes and machines that share results.
        """

    def read(self, key: str) -> Any:
        """Return the document stored under ``key``; None if there is no intact document."""

    def write(self, key: str, document: Any) -> None:
        """Store a JSON document. The store handles its own failures."""

    def pack(self, compiled: Compiled) -> Any:
        """Return a compiled graph as JSON data; None if it has no such form."""

    def unpack(self, record: Any, graph: Callable[[], GraphModule]) -> Compiled:
        """Return the compiled graph of ``record``. ``graph`` traces the original graph again, at some cost.

        Raises:
            Exception: of any class, if ``record`` cannot be used on this machine. The program is then
                compiled anew.
        """

    def used(self, remake: Callable[[], object]) -> None:
        """Note that a training step comes from the store. ``remake`` traces and partitions it again."""


logger = logging.getLogger(__name__)


class CacheEntry:
    """The entry of one program. Without a store or a key nothing is found or kept."""

    def __init__(
        self, store: Store | None, captured: Captured, request: TraceRequest, options: AotOptions
    ) -> None:
        self.store = store
        self.captured = captured
        self.key = None
        self._kept = False
        self.sizes = Sizes(captured)
        if store is not None:
            self.key = program_key(captured, self.sizes, request, options, store.salt)

    def find(self) -> Stored | None:
        """Return the stored program; None if the store lacks it.

        If it cannot be read, write a log line and return None.
        """
        if self.store is None or self.key is None:
            return None
        document = self.store.read(self.key)
        if document is None:
            return None
        try:
            if document["key"] == self.key:
                return decode_program(document["program"], self.captured, self.sizes)
            logger.warning("stored program %s is compiled anew: it is another program's", self.key[:12])
        except Exception as error:
            logger.warning("stored program %s is compiled anew: %.300s", self.key[:12], error)
        return None

    def load(self, record: object, graph: Callable[[], GraphModule]) -> Compiled | None:
        """Return a compiled graph from its stored form. If it cannot be loaded, write a log line and return None."""
        assert self.store is not None
        try:
            return self.store.unpack(record, graph)
        except Exception as error:
            logger.warning("stored program %s is compiled anew: %s", str(self.key)[:12], error)
            return None

    def used(self, remake: Callable[[], object]) -> None:
        if self.store is not None:
            self.store.used(remake)

    def keep_inference(self, shell: Shell, compiled: Compiled) -> None:
        self._keep(shell, None, (compiled, None))

    def keep_training(
        self, shell: Shell, pair: Pair, variant: Variant | None, backward: Compiled | None
    ) -> None:
        """Store the forward, and later the forward with the first compiled backward.

        Other backward variants are not stored.
        """
        if not self._kept:
            is_written = self._keep(shell, (pair.plan, variant), (pair.forward, backward))
            self._kept = is_written and variant is not None

    def _keep(
        self,
        shell: Shell,
        training: tuple[TrainingPlan, Variant | None] | None,
        graphs: tuple[Compiled, Compiled | None],
    ) -> bool:
        """Write the program. Return whether it was written."""
        if self.store is None or self.key is None:
            return False
        try:
            forms = [None if graph is None else self.store.pack(graph) for graph in graphs]
            if any(form is None for form, graph in zip(forms, graphs, strict=True) if graph):
                return False
            document = encode_program(shell, training, self.sizes.added_guards(), *forms)
            self.store.write(self.key, {"key": self.key, "program": document})
        except SaveError as error:
            logger.debug("program %s is not kept: %s", self.key[:12], error)
        except Exception as error:
            logger.warning("program %s is not kept: %r", self.key[:12], error)
        else:
            return True
        return False
