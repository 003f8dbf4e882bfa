"""Protocols of the parts of the object model and of the torch side that other folders use."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import CellType, FunctionType
from typing import Any, NoReturn, Protocol

import torch

from fxstack_capture.effects.records import Effect
from fxstack_capture.objects.registry import Entry
from fxstack_capture.sources import Source


class AppendOnly(Protocol):
    """Lists of the program that the trace has not read yet: the program only adds to them."""

    def __contains__(self, proxy: object) -> bool: ...

    def added(self, proxy: Any) -> tuple[Any, ...]:
        """Return what the program has added to an unread list."""

    def enter(self, obj: object, source: Source) -> list[Any] | None:
        """Return the proxy of a list, unread where possible; None for any other object."""

    def in_attribute(self, obj: object, name: str) -> list[Any] | None: ...

    def in_cell(self, cell: CellType) -> list[Any] | None: ...

    def in_globals(self, namespace: dict[str, object], name: str) -> list[Any] | None: ...

    def item(self, proxy: list[Any], key: object) -> Any:
        """Read one item alone. Return NULL, and read the whole list, where one item cannot be read alone."""

    def lazily(self, value: object) -> list[Any] | None:
        """Return the unread list that a slot or cell holds."""

    def length(self, proxy: list[Any]) -> Any:
        """Return the length: a symbol once the length has changed between calls."""

    def expand(self, proxy: list[Any]) -> None:
        """Read the list: put its items in front of the added ones."""


class Iterators(Protocol):
    """Partially consumed iterators of the program."""

    def __contains__(self, obj: object) -> bool: ...

    def __len__(self) -> int: ...

    def add(self, obj: object, source: Source) -> None:
        """Enter ``obj`` as itself. Iterators of known types can be read without advancing them."""

    def advances(self) -> Iterator[tuple[Source, int]]:
        """Return the number of items to take from each real iterator; an ``enumerate`` comes first."""

    def asked_by(self, obj: object) -> tuple[Any, ...]:
        """Return the function of a ``map`` or ``filter`` and the iterators that it reads. Raises GraphBreak."""

    def enter(self, obj: object, source: Source) -> Any:
        """Enter an iterator that another iterator reads. Raises GraphBreak if it cannot be read."""

    def entered(self, item: object) -> Any:
        """Return the proxy of an item."""

    def next(self, obj: object) -> Any:
        """Return the next item, not entered. Raises StopIteration, GraphBreak."""


class Classes(Protocol):
    """What the trace has read of classes."""

    def lookup(self, cls: type, name: str) -> Any:
        """Return the attribute of ``cls`` that is found along its MRO, not bound; ABSENT where there is none."""

    def note_bases(self, cls: type) -> None:
        """The program has asked what ``cls`` derives from."""

    def forget(self, cls: type) -> None:
        """Drop what is known of a class that the program has just made."""

    @property
    def cache(self) -> dict[tuple[type, str], Any]: ...

    @property
    def overlays(self) -> dict[type, dict[str, object]]: ...

    def store(self, cls: type, name: str, value: object) -> None:
        """Overlay a class of the outside (``value`` may be ABSENT)."""

    def note_special_methods(self, cls: type) -> None:
        """C code is about to use instances of ``cls``: guard the methods that it finds on the type"""


class Contexts(Protocol):
    def __contains__(self, obj: object) -> bool: ...

    def add(self, obj: object, source: Source) -> None: ...

    def changes(self, obj: object, source: Source) -> Iterator[Effect]: ...

    def load(self, raw: object, obj: object) -> Any:
        """A C attribute. Raises GraphBreak for one whose reading has effects."""

    def store(self, raw: object, obj: object, value: object) -> None:
        """Write a C attribute, or delete it (``value`` is ABSENT). Raises GraphBreak."""


class Distinctions(Protocol):
    def note_compared(self, left: object, right: object) -> None:
        """The program asked whether two objects are the same (``is``, or ``==`` which may start"""

    def note_identified(self, obj: object) -> None:
        """The program used the identity of an object: its ``id``, or its place in a hash table."""

    def note_written(self, entry: Entry) -> None: ...


class Recreated(Protocol):
    def __contains__(self, obj: object) -> bool: ...

    def enter(self, fn: FunctionType, source: Source) -> bool:
        """Guard ``fn`` by its code, if it is one that programs make anew; whether it is."""

    def pin(self, values: tuple[Any, ...]) -> None:
        """The trace depends on the identity of those of ``values`` that are such functions."""


class Addresses(Protocol):
    """Numbers and texts that hold the address of an object, which differs from call to call."""

    def number(self, function: Callable[[Any], int], obj: object, number: int) -> int:
        """Return what ``function(obj)`` is to the program; ``number`` is the result for the proxy."""

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
        """Note a draw. Return the source of its result."""

    def draw(
        self,
        function: Callable[..., Any],
        generator: random.Random,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The result of a call in terms of the trace: symbolic numbers, a list of these, or None. Raises GraphBreak."""


class Arrays(Protocol):
    """NumPy arrays of the trace."""

    has_scalars: bool
    """Whether there are NumPy scalars that change from call to call."""

    def about(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what NumPy says about the types of its arguments; raises NumPy's exceptions."""

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of NumPy, or an operator on arrays."""

    def from_tensor(self, tensor: torch.Tensor) -> Any:
        """Return the array over the memory of a dense CPU tensor of the trace, of a dtype that NumPy has."""

    def iterate(self, array: Any) -> Iterator[Any]: ...

    def refuse(self, what: str) -> NoReturn: ...


class TorchNames(Protocol):
    """The functions of torch whose meaning the trace relies on."""

    def is_usual(self, fn: FunctionType) -> bool:
        """Whether a Python function of torch is unchanged since import; guards what the function reads."""


class AssumedTruths(Protocol):
    """Truth values of tensors that the trace assumes and the graph checks."""

    allowed: bool
    ends_at_handlers: bool
    """Whether the graph ends at calls that may raise for their data where the program handles errors."""

    handled: bool
    """Whether the graph has a call that may raise where the program handles errors."""

    @property
    def passed(self) -> torch.Tensor | None: ...

    @property
    def retractable(self) -> bool:
        """Whether a graph that has run or raised leaves no traces once torch's state is restored."""

    @property
    def draws(self) -> bool:
        """Whether the graph draws random numbers. Known when the trace is done."""

    def demand_retractable(self) -> None:
        """Raise RefusedError where running the graph leaves traces."""
