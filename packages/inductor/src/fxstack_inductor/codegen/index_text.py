"""Print index expressions as C or Triton text; each target supplies the spelling of the operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fxstack_inductor.ir.expr import Atom, Expr, Extremum, FloorDiv, Mod, Var


@dataclass(frozen=True, slots=True)
class IndexPrinter:
    """Prints an expression when called. Helpers floor divisions of negative numbers, as Python does."""

    number: Callable[[int], str]
    """Returns the text of a constant."""
    divide: str
    """The truncating operator, used where the dividend is not negative."""
    floordiv: str
    """Name of the helper that floors a quotient of any sign."""
    remainder: str
    """Name of the helper for a remainder whose dividend may be negative."""
    extremum: str
    """A format with ``{name}`` for ``min`` or ``max``."""
    variable: str = "{}"
    """A format for the name of a variable."""
    wrapped: str = ""
    """Name of the helper for a remainder whose dividend is negative by at most the divisor, and less than the divisor."""

    def __call__(self, expr: Expr) -> str:
        if not expr.terms:
            return "0"
        return " + ".join(self._term(monomial, c) for monomial, c in expr.terms)

    def _term(self, monomial: tuple[Atom, ...], coefficient: int) -> str:
        """Return the text of a product of atoms and a coefficient."""
        factors = [self._atom(atom) for atom in monomial]
        if coefficient != 1 or not factors:
            factors.append(self.number(coefficient))
        return "*".join(factors)

    def _atom(self, atom: Atom) -> str:
        """Return the text of a variable, quotient, remainder, minimum or maximum."""
        match atom:
            case Var(name):
                return self.variable.format(name)
            case FloorDiv(num, den):
                return self._quotient(self.divide, self.floordiv, num, den)
            case Mod(num, den):
                return self._wrapped(num, den) or self._quotient("%", self.remainder, num, den)
            case Extremum(name, left, right):
                return f"{self.extremum.format(name=name)}({self(left)}, {self(right)})"

    def _wrapped(self, num: Expr, den: Expr) -> str:
        """Return ``num % den`` where the bounds of ``num`` allow no more than two quotients, else an empty text."""
        (low, high), size = num.bounds(), den.as_int()
        if not self.wrapped or low is None or high is None or not size:
            return ""
        start = (low // size + 1) * size
        return f"{self.wrapped}({self(num - start)}, {self(den)})" if high - start < size else ""

    def _quotient(self, symbol: str, helper: str, num: Expr, den: Expr) -> str:
        """Return ``num / den`` or its remainder: by ``symbol`` if ``num`` cannot be negative, else by ``helper``."""
        low = num.bounds()[0]
        if low is not None and low >= 0:
            return f"(({self(num)}) {symbol} ({self(den)}))"
        return f"{helper}({self(num)}, {self(den)})"


def _c_number(value: int) -> str:
    """Return a C constant; beyond 32 bits it needs a type."""
    return str(value) if -(2**31) < value < 2**31 else f"INT64_C({value})"


c_index = IndexPrinter(
    _c_number, "/", "floordiv_int64_t", "remainder_int64_t", "{name}_int64_t", wrapped="wrapped_int64_t"
)
"""C text in 64 bits."""

triton_index = IndexPrinter(
    lambda value: str(value) if value >= 0 else f"({value})", "//", "_floordiv", "_remainder", "tl.{name}imum"
)
"""Triton text, in the type of the loop variables."""

wide_index = replace(triton_index, variable="({} + tl.full([], 0, tl.int64))")
"""Triton text, in 64 bits."""
