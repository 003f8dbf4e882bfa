"""Integer index expressions: polynomials over loop variables, sizes, quotients and remainders.

Every coordinate, stride, offset and size in the IR is an ``Expr``. ``Expr`` replaces sympy here. It supports
only what addressing needs. It simplifies at construction, by rules that always hold for integers, so
construction takes microseconds. An ``Expr`` is a sum of ``coefficient * atom * atom * ...``; an atom is a
``Var``, ``FloorDiv``, ``Mod`` or ``Extremum``. ``Var.extent`` gives a loop variable's range ``[0, extent)``;
the range lets ``(i0 * 64 + i1) // 64`` become ``i0``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from math import gcd
from operator import attrgetter, mul

from fxstack_inductor.ir.bounds import Bounds, VarKind, added, combined, multiplied, scaled


@dataclass(frozen=True, slots=True)
class Var:
    """A variable of an index expression: a loop variable, a symbolic size, or a value of the kernel."""

    name: str
    kind: VarKind
    extent: Expr | None = None
    """The number of values of a loop variable, which starts at 0; None for other kinds."""
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
        """Return the bounds of a loop variable or size; other variables have unknown bounds."""
        if self.kind is VarKind.SIZE:
            return 0, None
        if self.kind is not VarKind.LOOP or self.extent is None:
            return None, None
        upper = self.extent.bounds()[1]
        return 0, None if upper is None else upper - 1


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """The quotient ``num // den`` of a positive divisor; make it by ``floordiv``, which simplifies."""

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
    """The remainder ``num % den`` of a positive divisor; make it by ``mod``, which simplifies."""

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
    """``max`` or ``min`` of two expressions; make it by ``extremum``, which simplifies."""

    name: str
    left: Expr
    right: Expr

    @property
    def key(self) -> str:
        return f"{self.name}({self.left}, {self.right})"

    def bounds(self) -> Bounds:
        pick = max if self.name == "max" else min
        return combined(pick, self.left.bounds(), self.right.bounds())


Atom = Var | FloorDiv | Mod | Extremum
Monomial = tuple[Atom, ...]


def _operand(expr: Expr) -> str:
    """Return the text of ``expr``, in parentheses where an operator beside it would change its meaning."""
    number = expr.as_int()
    simple = expr.as_var() is not None or (number is not None and number >= 0)
    return expr.text if simple else f"({expr.text})"


def parts(atom: Atom) -> tuple[Expr, ...]:
    match atom:
        case Var():
            return ()
        case FloorDiv(num, den) | Mod(num, den):
            return num, den
        case Extremum(_, left, right):
            return left, right


class Expr:
    """An immutable polynomial with integer coefficients; sorted ``terms`` make equal sums compare equal."""

    __slots__ = ("__dict__", "_hash", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash: int | None = None

    def __hash__(self) -> int:
        value = self._hash  # hashed on demand: most expressions are never looked up
        if value is None:
            value = self._hash = hash(self.terms)
        return value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.as_int() == other
        if not isinstance(other, Expr):
            return False
        return self is other or (hash(self) == hash(other) and self.terms == other.terms)

    def __add__(self, other: Expr | int) -> Expr:
        other = as_expr(other)
        if not self.terms:
            return other
        if not other.terms:
            return self
        total = dict(self.terms)
        for monomial, coefficient in other.terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return _from_dict(total)

    def __mul__(self, other: Expr | int) -> Expr:
        other = as_expr(other)
        if (scale := other.as_int()) is not None:
            return self._scaled(scale)
        if (scale := self.as_int()) is not None:
            return other._scaled(scale)
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = tuple(sorted(left + right, key=attrgetter("key")))
                total[monomial] = total.get(monomial, 0) + a * b
        return _from_dict(total)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Expr:
        return self._scaled(-1)

    def __sub__(self, other: Expr | int) -> Expr:
        return self + -as_expr(other)

    def __rsub__(self, other: Expr | int) -> Expr:
        return as_expr(other) - self

    def __repr__(self) -> str:
        return self.text

    @cached_property
    def text(self) -> str:
        if not self.terms:
            return "0"
        return " + ".join(_term_text(monomial, coefficient) for monomial, coefficient in self.terms)

    def _scaled(self, scale: int) -> Expr:
        if scale == 1:
            return self
        if scale == 0:
            return ZERO
        return Expr(tuple((monomial, coefficient * scale) for monomial, coefficient in self.terms))

    def as_int(self) -> int | None:
        if not self.terms:
            return 0
        monomial, coefficient = self.terms[0]
        return coefficient if len(self.terms) == 1 and not monomial else None

    def as_var(self) -> Var | None:
        if len(self.terms) != 1:
            return None
        monomial, coefficient = self.terms[0]
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Var):
            return monomial[0]
        return None

    def atoms(self) -> Iterator[Atom]:
        """Yield every atom, including atoms inside atoms."""
        for monomial, _ in self.terms:
            for atom in monomial:
                yield atom
                for part in parts(atom):
                    yield from part.atoms()

    @cached_property
    def variables(self) -> frozenset[Var]:
        return frozenset(atom for atom in self.atoms() if isinstance(atom, Var))

    def bounds(self) -> Bounds:
        """Return bounds of the value, as the sum of the bounds of its terms."""
        return added(scaled(multiplied([atom.bounds() for atom in m]), c) for m, c in self.terms)

    def is_positive(self) -> bool:
        return (self.bounds()[0] or 0) > 0

    def coefficient(self, var: Var) -> Expr | None:
        """Return the coefficient of ``var`` if the expression is linear in ``var``, else None."""
        if var not in self.variables:
            return ZERO
        known: dict[Var, Expr | None] = self.__dict__.setdefault("coefficients", {})
        if var not in known:
            known[var] = self._coefficient(var)
        return known[var]

    def _coefficient(self, var: Var) -> Expr | None:
        total: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            if len(monomial) == 1 and isinstance(monomial[0], Var):
                if monomial[0] == var:
                    total[()] = coefficient
                continue
            rest = [atom for atom in monomial if atom != var]
            inside = any(var in part.variables for atom in rest for part in parts(atom))
            if inside or len(monomial) - len(rest) > 1:
                return None
            if len(rest) < len(monomial):
                total[tuple(rest)] = total.get(tuple(rest), 0) + coefficient
        return _from_dict(total)

    def subs(self, mapping: Mapping[Var, Expr]) -> Expr:
        """Replace variables and simplify the result."""
        var = self.as_var()
        if var is not None:
            return mapping.get(var, self)
        if not any(v in mapping for v in self.variables):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            product = integer(coefficient)
            for atom in monomial:
                product = product * _subs_atom(atom, mapping)
            total = total + product
        return recombine(total)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Return the value of the expression; ``values`` gives every variable by name."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom in monomial:
                product *= _evaluate_atom(atom, values)
            total += product
        return total


def _term_key(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    return -len(term[0]), tuple(atom.key for atom in term[0])


def _from_dict(total: dict[Monomial, int]) -> Expr:
    items = [item for item in total.items() if item[1] != 0]
    if len(items) > 1:
        items.sort(key=_term_key)
    return Expr(tuple(items))


def _term_text(monomial: Monomial, coefficient: int) -> str:
    scale = [str(coefficient)] if coefficient != 1 or not monomial else []
    return "*".join([*(atom.key for atom in monomial), *scale])


def _subs_atom(atom: Atom, mapping: Mapping[Var, Expr]) -> Expr:
    match atom:
        case Var():
            return mapping.get(atom, of_atom(atom))
        case FloorDiv(num, den):
            return floordiv(num.subs(mapping), den.subs(mapping))
        case Mod(num, den):
            return mod(num.subs(mapping), den.subs(mapping))
        case Extremum(name, left, right):
            return extremum(name, left.subs(mapping), right.subs(mapping))


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    match atom:
        case Var(name):
            return values[name]
        case FloorDiv(num, den):
            return num.evaluate(values) // den.evaluate(values)
        case Mod(num, den):
            return num.evaluate(values) % den.evaluate(values)
        case Extremum(name, left, right):
            pick = max if name == "max" else min
            return pick(left.evaluate(values), right.evaluate(values))


@lru_cache(maxsize=1 << 12, typed=True)
def integer(value: int) -> Expr:
    return Expr((((), value),)) if value else ZERO


def of_atom(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def as_expr(value: Expr | int) -> Expr:
    return value if isinstance(value, Expr) else integer(int(value))


def loop_var(name: str, extent: Expr | int) -> Expr:
    """Return a loop variable; a variable with extent 1 is the constant 0."""
    extent = as_expr(extent)
    return ZERO if extent == 1 else of_atom(Var(name, VarKind.LOOP, extent))


def value_var(name: str) -> Expr:
    return of_atom(Var(name, VarKind.VALUE))


def product(values: Iterable[Expr | int]) -> Expr:
    return reduce(mul, values, ONE)


def _divide_terms(num: Expr, den: Expr) -> tuple[Expr, Expr]:
    """Return (quotient, rest): ``num == quotient * den + rest``; no term of rest is a multiple of ``den``."""
    if len(den.terms) != 1:
        return (ONE, ZERO) if num == den else (ZERO, num)
    den_atoms, scale = den.terms[0]
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in num.terms:
        remaining = _remove(monomial, den_atoms)
        if remaining is not None and coefficient % scale == 0:
            quotient[remaining] = coefficient // scale
        elif remaining is not None and den_atoms == () and abs(coefficient) > scale > 0:
            quotient[remaining] = coefficient // scale
            rest[monomial] = coefficient % scale
        else:
            rest[monomial] = coefficient
    return _from_dict(quotient), _from_dict(rest)


def _remove(monomial: Monomial, part: Monomial) -> Monomial | None:
    """Return ``monomial`` without the factors ``part``, or None if a factor is missing."""
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def in_range(value: Expr, size: Expr) -> bool:
    """Whether ``0 <= value < size`` is certain."""
    if (var := value.as_var()) is not None and var.extent == size:
        return True
    low, high = value.bounds()
    if low is None or low < 0:
        return False
    bound = size.bounds()[0]
    return high is not None and bound is not None and high < bound


def _coarse(rest: Expr, divisor: int) -> tuple[Expr, Expr, int] | None:
    """Return (coarse, fine, k): ``rest == k * coarse + fine``, ``0 <= fine < k``, and ``k`` divides ``divisor``."""
    for _, coefficient in rest.terms:
        k = gcd(divisor, coefficient)
        if k <= 1:
            continue
        coarse = Expr(tuple((m, c // k) for m, c in rest.terms if c % k == 0))
        fine = Expr(tuple((m, c) for m, c in rest.terms if c % k))
        if in_range(fine, integer(k)):
            return coarse, fine, k
    return None


def _constant_quotient(value: Expr, divisor: int) -> int | None:
    """Return ``value // divisor`` if the bounds of ``value`` allow only one result."""
    low, high = value.bounds()
    if low is None or high is None or low // divisor != high // divisor:
        return None
    return low // divisor


def floordiv(num: Expr | int, den: Expr | int) -> Expr:
    """Return ``num // den`` (Python's floor division); ``den`` must be positive."""
    num, den = as_expr(num), as_expr(den)
    if den == 1:
        return num
    quotient, rest = _divide_terms(num, den)
    if not rest.terms or in_range(rest, den):
        return quotient
    divisor = den.as_int()
    if divisor is not None:
        if (whole := _constant_quotient(rest, divisor)) is not None:
            return quotient + whole
        if (split := _coarse(rest, divisor)) is not None:
            return quotient + floordiv(split[0], divisor // split[2])
        if len(rest.terms) == 1:
            (monomial, coefficient) = rest.terms[0]
            inner = monomial[0] if coefficient == 1 and len(monomial) == 1 else None
            if isinstance(inner, FloorDiv) and inner.den.is_positive():
                return quotient + floordiv(inner.num, inner.den * den)
    return quotient + of_atom(FloorDiv(rest, den))


def mod(num: Expr | int, den: Expr | int) -> Expr:
    """Return ``num % den`` (Python's modulo); ``den`` must be positive."""
    num, den = as_expr(num), as_expr(den)
    if den == 1:
        return ZERO
    _, rest = _divide_terms(num, den)
    if not rest.terms or in_range(rest, den):
        return rest
    divisor = den.as_int()
    if divisor is not None and (whole := _constant_quotient(rest, divisor)) is not None:
        return rest - whole * divisor
    if divisor is not None and (split := _coarse(rest, divisor)) is not None:
        return mod(split[0], divisor // split[2]) * split[2] + split[1]
    if divisor is not None and len(rest.terms) == 1:
        monomial, coefficient = rest.terms[0]
        inner = monomial[0] if coefficient == 1 and len(monomial) == 1 else None
        if isinstance(inner, Mod) and (size := inner.den.as_int()) and size % divisor == 0:
            return mod(inner.num, den)
    return of_atom(Mod(rest, den))


def extremum(name: str, left: Expr | int, right: Expr | int) -> Expr:
    """Return ``max`` or ``min`` of two expressions; a constant difference or bounds may decide the result."""
    left, right = as_expr(left), as_expr(right)
    low, high = (left - right).bounds()
    if low is not None and low >= 0:
        return left if name == "max" else right
    if high is not None and high <= 0:
        return right if name == "max" else left
    return of_atom(Extremum(name, left, right))


def recombine(expr: Expr) -> Expr:
    """Undo a split of a variable: ``c*d*(x // d) + c*(x % d)`` becomes ``c*x``."""
    terms = dict(expr.terms)
    for monomial, coefficient in expr.terms:
        for position, atom in enumerate(monomial):
            if not isinstance(atom, FloorDiv):
                continue
            others = Expr(((monomial[:position] + monomial[position + 1 :], coefficient),))
            scale = _without_factor(others, atom.den)
            if scale is None:
                continue
            partner = mod(atom.num, atom.den) * scale
            if partner.terms and all(terms.get(m) == c for m, c in partner.terms):
                rest = expr - partner - Expr(((monomial, coefficient),))
                return recombine(rest + atom.num * scale)
    return expr


def _without_factor(term: Expr, den: Expr) -> Expr | None:
    """Return ``term`` without the factor ``den`` or ``max(den, 1)``; None if ``term`` has neither.

    ``den`` is the divisor of another atom and therefore positive, so ``max(den, 1)`` equals ``den``.
    """
    ((monomial, coefficient),) = term.terms
    if len(den.terms) == 1:
        (atoms, scale), *_ = den.terms
        left = _remove(monomial, atoms)
        if left is not None and coefficient % scale == 0:
            return Expr(((left, coefficient // scale),))
    left = _remove(monomial, (Extremum("max", den, ONE),))
    return None if left is None else Expr(((left, coefficient),))


ZERO = Expr(())
ONE = integer(1)
