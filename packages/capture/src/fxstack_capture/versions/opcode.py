"""The facts of one opcode: how it is executed, and what it takes from the stack and leaves there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fxstack_capture.interpreter.program import Lowering

Effect = tuple[int, int] | Callable[[int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Opcode:
    """One row of a version's table.

    ``effect`` is how many values the operation takes from the stack and how many it leaves, or a function of the
    argument that gives both; None for an operation that cannot end a graph. A jump leaves them when it does not
    jump, and ``leaves_jumping`` when it does.
    """

    lower: Lowering
    effect: Effect | None = None
    leaves_jumping: int = 0
    skip: int = 0
    """How many operations at its target a jump passes over."""
    looks: int = 0
    """How many values below those that it takes the operation looks at."""
    null_bit: int = 0
    """The bit of the argument that asks for a NULL (or receiver) beside the value."""
    value_only: str = ""
    """The opcode that leaves the same value without a NULL (or receiver), if this one always leaves both (3.11)."""

    def takes_and_leaves(self, argument: int) -> tuple[int, int] | None:
        return self.effect(argument) if callable(self.effect) else self.effect
