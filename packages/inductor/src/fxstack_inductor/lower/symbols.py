"""Symbolic integers of the graph (sympy, inside ``torch.SymInt``) as index expressions."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import (
    ONE,
    ZERO,
    Expr,
    extremum,
    floordiv,
    integer,
    mod,
    size_var,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import sympy


def size_expr(value: Any) -> Expr:
    """An int or SymInt as an ``Expr``."""
    if isinstance(value, torch.SymInt):
        return convert(value.node.expr)
    return integer(int(value))


def convert(expr: sympy.Basic) -> Expr:
    if expr.is_Integer:
        return integer(int(expr))  # type: ignore[call-overload]
    if expr.is_Symbol:
        return size_var(str(expr))
    rule = CONVERSIONS.get(type(expr).__name__)
    if rule is None:
        raise NotLowered(f"size expression {expr} of kind {type(expr).__name__}")
    return rule(*(convert(arg) for arg in expr.args))


def _power(base: Expr, exponent: Expr) -> Expr:
    times = exponent.as_int()
    if times is None or times < 0:
        raise NotLowered(f"size expression ({base}) ** ({exponent})")
    return reduce(lambda total, _: total * base, range(times), ONE)


def _extremum(name: str) -> Callable[..., Expr]:
    return lambda *args: reduce(lambda a, b: extremum(name, a, b), args)


CONVERSIONS: dict[str, Callable[..., Expr]] = {
    "Add": lambda *args: sum(args, ZERO),
    "Mul": lambda *args: reduce(lambda a, b: a * b, args, ONE),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": floordiv,
    "CleanDiv": floordiv,
    "Mod": mod,
    "PythonMod": mod,
    "Max": _extremum("max"),
    "Min": _extremum("min"),
}
