"""A case of a call: which callables it is about, and what a call of them does.

``dispatch`` lists the cases of each kind of callable in the order in which they are asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Runner = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""``runner(calls, fn, args, kwargs)`` runs a call of ``fn`` and returns the result."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the list that decides what a call does."""

    name: str
    does: str
    """What a call does, for people."""
    find: Callable[[Any, Any], Runner | None]
    """``find(calls, fn)`` returns the runner, or None if the case does not hold for ``fn``. It asks ``calls`` only for
    ``is_leaf`` and for attributes of metaclasses, so that ``explaining`` can ask it without a trace."""
    instead: Callable[[Any], object] | None = None
    """Return the callable that is called in place of ``fn``, if ``fn`` alone determines it."""
    interprets: bool = False
    """Whether the interpreter runs the bytecode of ``fn``, so that the graph may break inside of it."""


def always(name: str, does: str, runner: Runner, instead: Callable[[Any], object] | None = None) -> Case:
    """Return a case that holds for every callable of its kind."""
    return Case(name, does, lambda _calls, _fn: runner, instead)
