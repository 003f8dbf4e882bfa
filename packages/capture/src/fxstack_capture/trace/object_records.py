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
    """The defaults and the closure of a function. A call needs them in addition to the code.

    For a function from outside, they are objects of the trace. ``fn`` keeps the function alive, because
    ``ObjectTables.parts`` is keyed by its id.
    """

    fn: FunctionType
    defaults: tuple[object, ...]
    kwdefaults: dict[str, object]
    closure: tuple[CellType, ...]


@dataclass(slots=True)
class ProxiedCell:
    """A cell of the program and its proxy.

    ``lazy`` is the first content of the proxy: the content of the original before it is read, or None if the
    original was empty.
    """

    original: CellType
    proxy: CellType
    source: Source
    lazy: DeferredLocal | None
    entered: Any = None
    """The wrapped content, if ``loaded``. If the cell has another content at the end of the trace, the write
    is a side effect.
    """
    loaded: bool = False
    """Whether the program has read the original content."""


class ConsumedIterator:
    """An iterator of the program that was partially consumed before the trace.

    ``obj`` is the real iterator. ``taken`` counts the items that the trace has taken from it directly. It
    does not count items that a real ``next`` of another iterator will take (``Consumed.leave_to_other``).
    """

    counts_for_others = False
    """Whether a real ``next`` also advances the iterators that this iterator reads, which then do not count
    the item.

    True only for ``enumerate``.
    """

    def __init__(self, obj: Any, source: Source) -> None:
        self.obj = obj
        self.source = source
        self.taken = 0
        """Number of items that the trace has taken directly."""
        self.ended = False
        """Whether the trace has reached the end.

        One more call of the real ``next`` then exhausts the iterator.
        """

    def next(self) -> Any:
        """Return the next item: ``DeferredLocal``, ``DeferredTuple`` or an object of the trace.

        Called in place of the real ``next``, which would advance the real iterator. Raises StopIteration at
        the end, and GraphBreak if the iterator cannot be read.
        """
        raise NotImplementedError

    def steps(self) -> int:
        """Return how often the replacement code calls the real ``next`` when the frame is left."""
        return self.taken + self.ended


@dataclass(frozen=True, slots=True)
class Recipe:
    """A call ``function(*args, **kwargs)`` that makes a class from constants.

    An example is ``namedtuple("P", "x y")``.
    """

    function: Callable[..., type]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Recipes:
    """The calls of library functions that made classes in the trace from constants.

    The replacement code makes each class anew in each call, as plain Python does.
    """

    def __init__(self) -> None:
        self._by_class_id: dict[int, tuple[type, Recipe, dict[str, Any]]] = {}
        """Maps the id of a class to the class, its recipe, and its namespace when it was made."""

    def note(
        self, cls: type, function: Callable[..., type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Record the call that made ``cls``, and the current attributes of ``cls``.

        The rules of ``type`` and of class factories such as ``namedtuple`` call this.
        """
        self._by_class_id[id(cls)] = cls, Recipe(function, args, kwargs), dict(vars(cls))

    def of(self, cls: type) -> Recipe | None:
        """Return the recipe of ``cls``. The replacement code makes the class from it.

        Return None if ``cls`` has no recipe, or if the program has changed the class since it was made.
        """
        entry = self._by_class_id.get(id(cls))
        if entry is None:
            return None
        _, recipe, original_namespace = entry
        namespace = vars(cls)
        is_unchanged = original_namespace.keys() == namespace.keys() and all(
            namespace[name] is value for name, value in original_namespace.items()
        )
        return recipe if is_unchanged else None
