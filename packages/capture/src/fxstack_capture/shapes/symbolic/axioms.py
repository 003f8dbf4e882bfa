"""What a ShapeEnv knows to be true or false, in a dictionary that knows which of it holds divisions.

When ShapeEnv learns that a number is divisible, it simplifies all that it knows once more, because ``FloorDiv`` may have become
``CleanDiv``: of thousands of facts this looks at every part of every one, each time. Only those with a ``FloorDiv`` can change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from fxstack_capture.torch_compat import FloorDiv


class Axioms(dict[sympy.Basic, sympy.Basic]):
    """Facts and their truth. Like ShapeEnv, it is added to by ``update`` alone."""

    def __init__(self) -> None:
        super().__init__()
        self._divisions: dict[sympy.Basic, sympy.Basic] = {}

    def update(self, facts: Any) -> None:  # type: ignore[override]
        """Add a dictionary of facts."""
        super().update(facts)
        self._divisions.update((fact, truth) for fact, truth in facts.items() if fact.has(FloorDiv))

    def simplify_divisions(self, simplify: Callable[[sympy.Basic], sympy.Basic]) -> None:
        """Add what the facts with divisions are now."""
        if self._divisions:
            super().update({simplify(fact): truth for fact, truth in self._divisions.items()})
