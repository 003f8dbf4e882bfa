"""The interface of a store of compiled programs, which the caller of ``aot`` implements.

This package knows neither the files of a compiler nor the contents of a compiled graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch.fx import GraphModule

from fxstack_functionalize.runtime.calling import Compiled


class Store(Protocol):
    """A cache of compiled programs."""

    @property
    def salt(self) -> str:
        """Return a text with everything on which results depend and which this package does not know.

        For example options and versions of other packages and torch's global state. Equal in all processes
        and machines that share results.
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
