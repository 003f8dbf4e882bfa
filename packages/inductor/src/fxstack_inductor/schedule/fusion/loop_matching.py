"""Unify two loop spaces, given pairs of coordinates that must be equal.

A producer computes its element at coordinates in its own loop variables. A consumer reads the element at
coordinates in the consumer's variables. Both can share a loop nest if the variables can be identified such
that the coordinates agree. Variables are split where a reshape merged or divided dimensions: ``x`` over 4096
against ``y*512 + z`` over 8 and 512.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ONE, Expr, FloorDiv, Mod, Var, of_atom


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason against a fusion: ``rule`` is the rule's name, ``detail`` the facts."""

    rule: str
    """Name of the rule that refuses."""
    detail: str = ""
    """Names or extents that show the case; empty if the rule says everything."""


@dataclass
class Unifier:
    """Identifies the variables of two loop spaces step by step; ``substitution`` then maps both to common variables."""

    left: list[Var]
    """Loop variables of one space, outermost first; splits change the list."""
    right: list[Var]
    """Loop variables of the other space."""
    fresh: Callable[[Expr], Var]
    """Makes a new variable of an extent, for the parts of a split variable."""
    substitution: dict[Var, Expr] = field(default_factory=dict)
    images: set[Var] = field(default_factory=set)
    """Left variables that are identified with a right variable."""

    def apply(self, expr: Expr) -> Expr:
        """Return ``expr`` in the common variables found so far."""
        while any(var in self.substitution for var in expr.variables):
            expr = expr.subs(self.substitution)
        return expr

    def match(self, pairs: Iterable[tuple[Expr, Expr]]) -> Refusal | None:
        """Identify variables so that the coordinates of each pair agree; return a refusal if that is impossible."""
        for left, right in pairs:
            refusal = self._match(left, right)
            if refusal is not None:
                return refusal
        return None

    def match_in_order(self, pairs: Iterable[tuple[Expr, Expr]]) -> bool:
        """Identify all variables by their order; return whether the coordinates then agree in any form."""
        if self.match_rest() is not None:
            return False
        return not self.unmatched_right() and all(a == self.apply(b) for a, b in pairs)

    def match_rest(self) -> Refusal | None:
        """Identify the remaining variables of both sides, in order, if their extents are equal."""
        lefts, rights = self.unmatched_left(), self.unmatched_right()
        if not lefts or not rights:
            return None
        if [v.extent for v in lefts] != [v.extent for v in rights]:
            return Refusal("different loops", f"{_extents(lefts)} and {_extents(rights)}")
        for left, right in zip(lefts, rights, strict=True):
            self._bind(left, right)
        return None

    def unmatched_left(self) -> list[Var]:
        """Return the left variables that no right variable equals yet."""
        return [var for var in self.left if var not in self.images]

    def unmatched_right(self) -> list[Var]:
        """Return the right variables that equal no left variable yet."""
        return [var for var in self.right if var not in self.substitution]

    def _match(self, left: Expr, right: Expr) -> Refusal | None:
        """Identify the variables of one pair of coordinates, splitting variables until both have equal digits."""
        while True:
            left, right = self._split_quotients(left), self._split_quotients(right)
            if left == right:
                return None
            a, b = digits(left), digits(right)
            if a is None or b is None:
                return Refusal("different coordinates", f"{left} and {right}")
            outcome = self._match_digits(a, b)
            if isinstance(outcome, Refusal):
                return outcome
            if outcome:
                return None
            # A variable was split, so both coordinates have new digits.
            left, right = self.apply(left), self.apply(right)

    def _match_digits(self, a: Sequence[Var], b: Sequence[Var]) -> Refusal | bool:
        """Return True if all variables are identified, False if one was split and matching must restart."""
        for x, y in zip(a, b, strict=False):
            if x == y:
                continue
            if x.extent != y.extent:
                return False if self._split_larger(x, y) else _mismatch(x, y)
            if y not in self.right or x not in self.left or x in self.images:
                return Refusal("different coordinates", f"{x.name} and {y.name}")
            self._bind(x, y)
        return True if len(a) == len(b) else Refusal("different loops", f"{len(a)} and {len(b)}")

    def _bind(self, left: Var, right: Var) -> None:
        """Identify the right variable with the left one."""
        self.images.add(left)
        self.substitution[right] = of_atom(left)

    def _split_larger(self, x: Var, y: Var) -> bool:
        """Split the variable of larger extent by the extent of the other; return whether that was possible."""
        a, b = _static(x), _static(y)
        if not a or not b:  # unknown extent, or an empty loop without digits
            return False
        if a % b == 0:
            return self.split(x, b)
        return b % a == 0 and self.split(y, a)

    def split(self, var: Var, size: int) -> bool:
        """Replace ``var`` by ``high * size + low``, unless ``var`` is identified already."""
        extent = _static(var)
        if extent is None or extent % size or var in self.images or var in self.substitution:
            return False
        from_ints = Expr((((), extent // size),)), Expr((((), size),))
        high, low = self.fresh(from_ints[0]), self.fresh(from_ints[1])
        side = self.left if var in self.left else self.right
        position = side.index(var)
        side[position : position + 1] = [high, low]
        self.substitution[var] = of_atom(high) * size + of_atom(low)
        return True

    def _split_quotients(self, expr: Expr) -> Expr:
        """Split variables so that ``x // d`` and ``x % d`` become variables."""
        expr = self.apply(expr)
        while True:
            for atom in expr.atoms():
                if not isinstance(atom, (FloorDiv, Mod)):
                    continue
                var, den = atom.num.as_var(), atom.den.as_int()
                if var is not None and den is not None and self.split(var, den):
                    break
            else:
                return expr
            expr = self.apply(expr)


def digits(expr: Expr) -> list[Var] | None:
    """Return the variables of a mixed-radix number, lowest digit first; None for another ``expr``."""
    scale = ONE
    remaining = dict(expr.terms)
    variables: list[Var] = []
    while remaining:
        for monomial in remaining:
            loops = [a for a in monomial if isinstance(a, Var) and a.kind is VarKind.LOOP]
            if len(loops) != 1:
                return None
            term = of_atom(loops[0]) * scale
            if len(term.terms) != 1:  # no term if a loop is empty
                continue
            ((key, value),) = term.terms
            if remaining.get(key) == value:
                break
        else:
            return None
        del remaining[key]
        variables.append(loops[0])
        scale = scale * (loops[0].extent or ONE)
    return variables


def _static(var: Var) -> int | None:
    """Return a variable's extent as a number; None if it is unknown."""
    return None if var.extent is None else var.extent.as_int()


def _mismatch(x: Var, y: Var) -> Refusal:
    """Return the refusal for loops of different extents."""
    return Refusal("different loops", f"{x.extent} and {y.extent}")


def _extents(variables: Iterable[Var]) -> list[str]:
    return [str(var.extent) for var in variables]
