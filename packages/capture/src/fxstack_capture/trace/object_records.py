"""Records of functions, cells, classes and iterators of the program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

from fxstack_capture.sources import Source
from fxstack_capture.trace.records import DeferredLocal


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a function that a call needs beside the code.

    ``fn`` keeps the id of the function valid.
    """

    fn: FunctionType
    defaults: tuple[object, ...]
    kwdefaults: dict[str, object]
    closure: tuple[CellType, ...]


@dataclass(slots=True)
class ProxiedCell:
    """A cell of the program and its proxy.

    ``lazy`` is the proxy's first content, or None for an empty cell.
    """

    original: CellType
    proxy: CellType
    source: Source
    lazy: DeferredLocal | None
    entered: Any = None
    loaded: bool = False


class ConsumedIterator:
    """An iterator of the program that was partially consumed before the trace.

    ``taken`` is the number of items that the trace has taken directly. An item that another iterator takes
    with a real ``next`` is not counted.
    """

    counts_for_others = False
    """Whether the iterator takes items of other iterators that these iterators do not count."""

    def __init__(self, obj: Any, source: Source) -> None:
        self.obj = obj
        self.source = source
        self.taken = 0
        self.ended = False

    def next(self) -> Any:
        """Return the next item: ``DeferredLocal``, ``DeferredTuple`` or an object of the trace.

        Raises StopIteration, GraphBreak.
        """
        raise NotImplementedError

    def steps(self) -> int:
        """Return the number of real calls of ``next``."""
        return self.taken + self.ended


@dataclass(frozen=True, slots=True)
class Recipe:
    """A call ``function(*args, **kwargs)`` of constants, which makes a class."""

    function: Callable[..., type]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Recipes:
    """The calls of library functions that made classes in the trace, from constants alone.

    The replacement code makes such a class anew in each call, as plain Python does.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[type, Recipe, dict[str, Any]]] = {}

    def note(
        self, cls: type, function: Callable[..., type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._made[id(cls)] = cls, Recipe(function, args, kwargs), dict(vars(cls))

    def of(self, cls: type) -> Recipe | None:
        """Return the recipe of ``cls``, unless the program has changed the class since."""
        entry = self._made.get(id(cls))
        if entry is None:
            return None
        _, recipe, before = entry
        now = vars(cls)
        same = before.keys() == now.keys() and all(now[name] is value for name, value in before.items())
        return recipe if same else None
