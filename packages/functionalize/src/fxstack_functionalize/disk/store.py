"""What the caller of ``aot`` provides for results to be kept: a place for documents, and a form for compiled graphs.

This package knows neither where a compiler keeps its files nor what its results are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule

    from fxstack_functionalize.runtime.calling import Compiled


class Store(Protocol):
    """A cache of compiled programs."""

    @property
    def salt(self) -> str:
        """Everything that results depend on and that this package does not know.

        Options and versions of the other parts, torch's global state; equal on all processes and machines that share results.
        """

    def read(self, key: str) -> Any:
        """Return the document stored under ``key``, None if there is no intact one."""

    def write(self, key: str, document: Any) -> None:
        """Keep a document that JSON can hold. A failure is the store's own affair."""

    def pack(self, compiled: Compiled) -> Any:
        """Return a compiled graph as data that JSON can hold, None if it has no such form."""

    def unpack(self, record: Any, graph: Callable[[], GraphModule]) -> Compiled:
        """Return the compiled graph again; ``graph`` makes the graph that it was compiled from, at some cost.

        Raises:
            Exception: whatever is wrong with ``record`` or this machine; the program is then compiled anew.
        """

    def used(self, remake: Callable[[], object]) -> None:
        """A training step comes from the store; ``remake`` has its graphs traced and partitioned after all."""
