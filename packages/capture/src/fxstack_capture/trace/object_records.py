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
    """The defaults and the closure of a function, which a call needs beside the code.

    For a function from outside they are objects of the trace. ``fn`` keeps the function alive, whose id is the key
    in ``ObjectTables.parts``.
    """

    fn: FunctionType
    defaults: tuple[object, ...]
    kwdefaults: dict[str, object]
    closure: tuple[CellType, ...]


@dataclass(slots=True)
class ProxiedCell:
    """A cell of the program and its proxy.

    ``lazy`` is the proxy's first content: the unread content of the original, or None if the original was empty.
    """

    original: CellType
    proxy: CellType
    source: Source
    lazy: DeferredLocal | None
    entered: Any = None
    """The wrapped content, if ``loaded``. Another content at the end of the trace is a side effect."""
    loaded: bool = False
    """Whether the program has read the original content."""


class ConsumedIterator:
    """An iterator of the program that was partially consumed before the trace.

    ``obj`` is the real iterator. ``taken`` counts the items that the trace has taken from it directly, not the
    items that another iterator takes by a real ``next`` (``Consumed.leave_to_other``).
    """

    counts_for_others = False
    """Whether a real ``next`` also advances other iterators, which then do not count the item.

    True for ``enumerate``.
    """

    def __init__(self, obj: Any, source: Source) -> None:
        self.obj = obj
        self.source = source
        self.taken = 0
        """Number of items that the trace has taken directly."""
        self.ended = False
        """Whether the trace has reached the end.

        The real iterator must then be exhausted by one more ``next``.
        """

    def next(self) -> Any:
        """Return the next item: ``DeferredLocal``, ``DeferredTuple`` or an object of the trace.

        Called in place of the real ``next``, which would advance the real iterator. Raises StopIteration,
        GraphBreak.
        """
        raise NotImplementedError

    def steps(self) -> int:
        """Return how many times the replacement code calls the real ``next`` when the frame is left."""
        return self.taken + self.ended


@dataclass(frozen=True, slots=True)
class Recipe:
    """A call ``function(*args, **kwargs)`` of constants, which makes a class.

    An example is ``namedtuple("P", "x y")``.
    """

    function: Callable[..., type]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Recipes:
    """The calls of library functions that made classes in the trace, from constants alone.

    The replacement code makes the class anew in each call, as plain Python does.
    """

    def __init__(self) -> None:
        self._by_class_id: dict[int, tuple[type, Recipe, dict[str, Any]]] = {}
        """By the id of the class: the class, its recipe, and its namespace when it was made."""

    def note(
        self, cls: type, function: Callable[..., type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Record the call that made ``cls``, with the attributes that the class has now.

        Called by the rules of ``type`` and of class factories such as ``namedtuple``.
        """
        self._by_class_id[id(cls)] = cls, Recipe(function, args, kwargs), dict(vars(cls))

    def of(self, cls: type) -> Recipe | None:
        """Return the recipe of ``cls``, from which the replacement code makes the class again.

        Return None if ``cls`` has no recipe, or if the program has changed the class since.
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
