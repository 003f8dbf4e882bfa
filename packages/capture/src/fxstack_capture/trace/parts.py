"""Protocols of the parts of the object model and of the torch side that other folders use."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import CellType, FunctionType
from typing import Any, NoReturn, Protocol

import torch

from fxstack_capture.sources import Source
from fxstack_capture.trace.effects import Effect
from fxstack_capture.trace.registry import Entry


class AppendOnly(Protocol):
    """Append-only lists: lists from outside whose existing items the trace has not read."""

    def __contains__(self, proxy: object) -> bool: ...

    def added(self, proxy: Any) -> tuple[Any, ...]:
        """Return the items that the program has appended to an append-only list."""

    def enter(self, obj: object, source: Source) -> list[Any] | None:
        """Return the proxy of a list, append-only if possible. Return None if ``obj`` is not a list."""

    def in_attribute(self, obj: object, name: str) -> list[Any] | None: ...

    def in_cell(self, cell: CellType) -> list[Any] | None: ...

    def in_globals(self, namespace: dict[str, object], name: str) -> list[Any] | None: ...

    def item(self, proxy: list[Any], key: object) -> Any:
        """Read one item. If one item cannot be read alone, read the whole list and return NULL."""

    def lazily(self, value: object) -> list[Any] | None:
        """Return the append-only list that a slot or cell holds."""

    def length(self, proxy: list[Any]) -> Any:
        """Return the length. A length that has changed between calls is a symbol."""

    def expand(self, proxy: list[Any]) -> None:
        """Read the whole list: insert the original items before the appended items."""


class Iterators(Protocol):
    """Partially consumed iterators of the program."""

    def __contains__(self, obj: object) -> bool: ...

    def __len__(self) -> int: ...

    def add(self, obj: object, source: Source) -> None:
        """Register ``obj`` as its own proxy. Iterators of known types can be read without advancing them."""

    def advances(self) -> Iterator[tuple[Source, int]]:
        """Return the number of items to take from each real iterator; an ``enumerate`` comes first."""

    def asked_by(self, obj: object) -> tuple[Any, ...]:
        """Return the function of a ``map`` or ``filter`` and the iterators that it reads.

        Raises GraphBreak.
        """

    def enter(self, obj: object, source: Source) -> Any:
        """Wrap an iterator that another iterator reads. Raises GraphBreak if the iterator cannot be read."""

    def entered(self, item: object) -> Any:
        """Return the proxy of an item."""

    def next(self, obj: object) -> Any:
        """Return the next item, not wrapped. Raises StopIteration, GraphBreak."""


class Classes(Protocol):
    """The class attributes that the trace has read, with the guards on them."""

    def lookup(self, cls: type, name: str) -> Any:
        """Return the attribute of ``cls`` found along its MRO, not bound, or ABSENT."""

    def note_bases(self, cls: type) -> None:
        """Record that the program has asked for the bases of ``cls``."""

    def forget(self, cls: type) -> None:
        """Drop the recorded lookups of a class that the program has just created."""

    @property
    def cache(self) -> dict[tuple[type, str], Any]: ...

    @property
    def overlays(self) -> dict[type, dict[str, object]]: ...

    def store(self, cls: type, name: str, value: object) -> None:
        """Record a write to a class from outside in an overlay. ``value`` is ABSENT for a deletion."""

    def note_special_methods(self, cls: type) -> None:
        """Guard the special methods of ``cls``: C code is about to look up these methods on the type."""


class Contexts(Protocol):
    def __contains__(self, obj: object) -> bool: ...

    def add(self, obj: object, source: Source) -> None: ...

    def changes(self, obj: object, source: Source) -> Iterator[Effect]: ...

    def load(self, raw: object, obj: object) -> Any:
        """Load an attribute implemented in C. Raises GraphBreak if loading the attribute has side effects."""

    def store(self, raw: object, obj: object, value: object) -> None:
        """Write an attribute implemented in C.

        ABSENT as ``value`` deletes the attribute. Raises GraphBreak.
        """


class Distinctions(Protocol):
    def note_compared(self, left: object, right: object) -> None:
        """Record that the program compared the identity of two objects.

        ``is`` compares the identity. ``==`` may compare the identity first.
        """

    def note_identified(self, obj: object) -> None:
        """Record that the program used the identity of ``obj``: its ``id`` or its place in a hash table."""

    def note_written(self, entry: Entry) -> None: ...


class Recreated(Protocol):
    def __contains__(self, obj: object) -> bool: ...

    def enter(self, fn: FunctionType, source: Source) -> bool:
        """Guard ``fn`` by its code if ``fn`` is a recreated function. Return whether ``fn`` is guarded so."""

    def pin(self, values: tuple[Any, ...]) -> None:
        """Guard the identity of each recreated function in ``values``: the trace depends on it."""


class Addresses(Protocol):
    """Numbers and texts that hold the address of an object. Addresses differ from call to call."""

    def number(self, function: Callable[[Any], int], obj: object, number: int) -> int:
        """Return the value of ``function(obj)`` for the program. ``number`` is the result for the proxy."""

    def demand_none(self, text: str) -> None:
        """Raise GraphBreak if ``text`` holds the address of a proxy."""

    def found(self, number: int) -> Any: ...

    def in_text(self, text: str) -> Any: ...


class Draws(Protocol):
    """Numbers and tensors that the frame draws from generators before the graph runs."""

    made: list[Any]

    def add(
        self, function: Callable[..., Any], generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Source:
        """Record a draw. Return the source of its result."""

    def draw(
        self,
        function: Callable[..., Any],
        generator: random.Random,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return the result of a draw: symbolic numbers, a list of symbolic numbers, or None.

        Raises GraphBreak.
        """

    def example(
        self, function: Callable[..., Any], generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return what a copy of the generator gives."""

    def result_of(
        self,
        function: Callable[..., Any],
        generator: Source,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        example: Any,
    ) -> Any:
        """Record a draw from the generator at a source. Return symbols for the numbers of the example."""

    def add_at(
        self, function: Callable[..., Any], generator: Source, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Source:
        """Record a draw from the generator at a source. Return the source of its result."""


class Arrays(Protocol):
    """NumPy arrays of the trace."""

    has_scalars: bool
    """Whether the trace has NumPy scalars whose number is dynamic."""

    def about(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a NumPy function that reads only the types of its arguments. Raises NumPy's exceptions."""

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a NumPy function, or apply an operator to arrays."""

    def from_tensor(self, tensor: torch.Tensor, *, writeable: bool = True) -> Any:
        """Return the array that shares the memory of ``tensor``, a dense CPU tensor with a NumPy dtype."""

    def iterate(self, array: Any) -> Iterator[Any]: ...

    def refuse(self, what: str) -> NoReturn: ...


class TorchNames(Protocol):
    """Functions of torch that the trace assumes to be unchanged."""

    def is_usual(self, fn: FunctionType) -> bool:
        """Return whether a Python function of torch is unchanged since import. Guard the names it reads."""


class AssumedTruths(Protocol):
    """Truth values of tensors that the trace assumes and the graph checks."""

    allowed: bool
    ends_at_writes: bool
    unseen: frozenset[tuple[tuple[int, int], ...]] | None
    """If set, graphs end at calls that may raise for tensor data, unless one of these blocks is around the call."""

    later_hooks: frozenset[int]
    """The hooks on tensors, by their order, that the replacement code registers after the graph has run."""

    handled_calls: dict[tuple[tuple[int, int], ...], tuple[int, int]]
    """The calls that may raise for tensor data where the program handles errors, by the blocks around them."""

    call_raises: Callable[[], BaseException | None]
    """Called at each such call. Returns an error that the call is to raise."""

    @property
    def handled(self) -> bool:
        """Whether the graph has a call that may raise for tensor data where the program handles errors."""

    @property
    def operators(self) -> int:
        """How many calls of operators the graph has so far."""

    @property
    def passed(self) -> torch.Tensor | None: ...

    @property
    def retractable(self) -> bool:
        """Whether a graph that ran or raised leaves no side effects once torch's state is restored."""

    @property
    def draws(self) -> bool:
        """Whether the graph draws random numbers. The value is final only when the trace is complete."""

    def demand_retractable(self) -> None:
        """Raise RefusedError if running the graph has side effects that cannot be undone."""
