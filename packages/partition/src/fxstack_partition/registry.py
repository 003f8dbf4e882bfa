"""Partitioners by name: from this package, from the program, and from installed packages.

An installed package registers a partitioner through the entry-point group ``fxstack.partitioners``, a program
or notebook through ``@register("name")``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TypeVar, cast

from fxstack_interchange import Partition, StageGraph
from fxstack_partition.options import PartitionOptions

Partitioner = Callable[[StageGraph, PartitionOptions], Partition]
P = TypeVar("P", bound=Partitioner)

ENTRY_POINT_GROUP = "fxstack.partitioners"


class UnknownPartitionerError(LookupError):
    """No partitioner has the given name."""


class Registry:
    """A table from names to partitioners, with installed entry points as fallback."""

    def __init__(self) -> None:
        self._table: dict[str, Partitioner] = {}

    def register(self, name: str) -> Callable[[P], P]:
        """Return a decorator that registers a partitioner as ``name``. A later registration replaces it."""

        def decorate(partitioner: P) -> P:
            self._table[name] = partitioner
            return partitioner

        return decorate

    def names(self) -> tuple[str, ...]:
        """Return every known name, sorted."""
        installed = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
        return tuple(sorted(installed | self._table.keys()))

    def get(self, name: str) -> Partitioner:
        """Return the partitioner called ``name``.

        Raises:
            UnknownPartitionerError: if no partitioner has this name.
        """
        if name in self._table:
            return self._table[name]
        for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
            return cast("Partitioner", point.load())
        msg = (
            f"no partitioner is called {name!r}; known are {', '.join(self.names())}. "
            f"Register one with @fxstack_partition.register({name!r}) or the entry-point group "
            f"{ENTRY_POINT_GROUP!r}, or pass the function itself."
        )
        raise UnknownPartitionerError(msg)


REGISTRY = Registry()
"""The process-wide table that ``register`` fills and ``partition`` reads."""

register = REGISTRY.register
