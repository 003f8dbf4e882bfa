"""Index expressions as JSON: an integer, or a list of terms; each term is a coefficient and its atoms.

Terms keep the order in which ``Expr`` stores them, so the expression that is read equals the one that was
written.
"""

from __future__ import annotations

from typing import Any

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import Atom, Expr, Extremum, FloorDiv, Mod, Var, integer
from fxstack_interchange import LoadError, SaveError

_QUOTIENTS: dict[str, type[FloorDiv | Mod]] = {"//": FloorDiv, "%": Mod}


def expr_to_json(expr: Expr) -> Any:
    """Return the JSON of ``expr``.

    Raises:
        SaveError: ``expr`` has a variable that is not a size.
    """
    number = expr.as_int()
    if number is not None:
        return number
    return [[coefficient, *map(_atom_to_json, monomial)] for monomial, coefficient in expr.terms]


def _atom_to_json(atom: Atom) -> Any:
    """Return the JSON of an atom: ``[kind, name, definition]`` for a size, else an operator and its operands."""
    match atom:
        case Var(name, kind, None, definition) if atom.symbolic:
            return [kind.value, name, definition]
        case FloorDiv(num, den):
            return ["//", expr_to_json(num), expr_to_json(den)]
        case Mod(num, den):
            return ["%", expr_to_json(num), expr_to_json(den)]
        case Extremum(name, left, right):
            return [name, expr_to_json(left), expr_to_json(right)]
    raise SaveError(f"{atom} is no size")


def expr_from_json(content: object) -> Expr:
    """Return the expression that ``expr_to_json`` wrote.

    Raises:
        LoadError: the content is malformed.
    """
    if type(content) is int:
        return integer(content)
    if not isinstance(content, list) or not all(type(term[0]) is int for term in content):
        raise LoadError(f"malformed expression {content!r:.100}")
    return Expr(tuple((tuple(map(_atom, atoms)), coefficient) for coefficient, *atoms in content))


def _atom(content: Any) -> Atom:
    """Return the atom that ``_atom_to_json`` wrote."""
    name, left, right = content
    if name in _QUOTIENTS:
        return _QUOTIENTS[name](expr_from_json(left), expr_from_json(right))
    if name in {"max", "min"}:
        return Extremum(name, expr_from_json(left), expr_from_json(right))
    return Var(left, VarKind(name), None, right)
