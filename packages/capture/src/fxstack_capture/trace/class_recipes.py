"""``Recipes``: the calls of library functions that made classes in the trace, from constants alone.

The replacement code makes such a class anew in each call, as plain Python does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Recipe:
    """A call ``function(*args, **kwargs)`` of constants, which makes a class."""

    function: Callable[..., type]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Recipes:
    """The recipes of one trace."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[type, Recipe, dict[str, Any]]] = {}

    def note(
        self, cls: type, function: Callable[..., type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._made[id(cls)] = cls, Recipe(function, args, kwargs), dict(vars(cls))

    def of(self, cls: type) -> Recipe | None:
        """Return the recipe of ``cls``, unless the program has changed the class since."""
        found = self._made.get(id(cls))
        if found is None:
            return None
        _, recipe, before = found
        now = vars(cls)
        same = before.keys() == now.keys() and all(now[name] is value for name, value in before.items())
        return recipe if same else None
