"""Atoms of index expressions: variables, quotients, remainders and extremes, with their text and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fxstack_inductor.ir.expr import Expr

Bounds = tuple[int | None, int | None]
"""Inclusive lower and upper bound; None if unknown."""


class VarKind(StrEnum):
    LOOP = "loop"
    """Runs over ``[0, extent)``."""
    SIZE = "size"
    """A symbolic size, at least 0, known when the graph is called."""
    INTEGER = "integer"
    """A symbolic integer, possibly negative, known when the graph is called."""
    VALUE = "value"
    """An integer computed or loaded in the kernel; ``name`` is the name of the value."""


@dataclass(frozen=True, slots=True)
class Var:
    name: str
    kind: VarKind
    extent: Expr | None = None
    definition: str = ""
    """Python text from which the host computes a size that is not a polynomial of other sizes."""

    def __hash__(self) -> int:
        return hash(self.name)  # names are unique in a kernel; an enum's hash is slow (Python code)

    @property
    def key(self) -> str:
        return self.name

    @property
    def symbolic(self) -> bool:
        """Whether the variable is an argument of the kernels that use it."""
        return self.kind in {VarKind.SIZE, VarKind.INTEGER}

    def bounds(self) -> Bounds:
        if self.kind is VarKind.SIZE:
            return 0, None
        if self.kind is not VarKind.LOOP or self.extent is None:
            return None, None
        upper = self.extent.bounds()[1]
        return 0, None if upper is None else upper - 1


@dataclass(frozen=True, slots=True)
class FloorDiv:
    num: Expr
    den: Expr

    @property
    def key(self) -> str:
        return f"({_operand(self.num)} // {_operand(self.den)})"

    def bounds(self) -> Bounds:
        (low, high), den = self.num.bounds(), self.den.as_int()
        if den is None or den <= 0:
            return (0, high) if low is not None and low >= 0 and self.den.is_positive() else (None, None)
        return (None if low is None else low // den), (None if high is None else high // den)


@dataclass(frozen=True, slots=True)
class Mod:
    num: Expr
    den: Expr

    @property
    def key(self) -> str:
        return f"({_operand(self.num)} % {_operand(self.den)})"

    def bounds(self) -> Bounds:
        high = self.den.bounds()[1]
        return 0, None if high is None else high - 1


@dataclass(frozen=True, slots=True)
class Extremum:
    """``max`` or ``min`` of two expressions."""

    name: str
    left: Expr
    right: Expr

    @property
    def key(self) -> str:
        return f"{self.name}({self.left}, {self.right})"

    def bounds(self) -> Bounds:
        (la, ha), (lb, hb) = self.left.bounds(), self.right.bounds()
        pick = max if self.name == "max" else min
        low = None if la is None or lb is None else pick(la, lb)
        high = None if ha is None or hb is None else pick(ha, hb)
        return low, high


Atom = Var | FloorDiv | Mod | Extremum
Monomial = tuple[Atom, ...]


def _operand(expr: Expr) -> str:
    """Return the text of ``expr``, in parentheses where an operator beside it would change its meaning."""
    known = expr.as_int()
    simple = expr.as_var() is not None or (known is not None and known >= 0)
    return expr.text if simple else f"({expr.text})"


def parts(atom: Atom) -> tuple[Expr, ...]:
    match atom:
        case Var():
            return ()
        case FloorDiv(num, den) | Mod(num, den):
            return num, den
        case Extremum(_, left, right):
            return left, right
