"""The facts of a ShapeEnv, in a dictionary that tracks which facts contain divisions.

When ShapeEnv learns that a number is divisible, it simplifies all of its facts again, because a ``FloorDiv``
may have become a ``CleanDiv``. With thousands of facts, each such pass visits every subexpression of every
fact. Only facts with a ``FloorDiv`` can change, so this class simplifies only them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from fxstack_capture.torch_compat import FloorDiv


class Axioms(dict[sympy.Basic, sympy.Basic]):
    """Facts and their truth values. Like ShapeEnv's dictionary, it is extended only by ``update``."""

    def __init__(self) -> None:
        super().__init__()
        self._divisions: dict[sympy.Basic, sympy.Basic] = {}

    def update(self, facts: Any) -> None:  # type: ignore[override]
        """Add a dictionary of facts."""
        super().update(facts)
        self._divisions.update((fact, truth) for fact, truth in facts.items() if fact.has(FloorDiv))

    def simplify_divisions(self, simplify: Callable[[sympy.Basic], sympy.Basic]) -> None:
        """Add the simplified forms of the facts with divisions."""
        if self._divisions:
            super().update({simplify(fact): truth for fact, truth in self._divisions.items()})
