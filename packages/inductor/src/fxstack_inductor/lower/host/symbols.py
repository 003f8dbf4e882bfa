"""Convert symbolic integers of the graph (sympy, inside ``torch.SymInt``) to index expressions.

A subexpression that ``Expr`` cannot represent (rounded floats, cases, bit operations) becomes a variable with
a Python ``definition`` over the graph's symbols. ``evaluator`` turns the definition into the function that
the host calls.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from types import FunctionType
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ONE, ZERO, Expr, Var, extremum, floordiv, integer, mod, of_atom
from fxstack_inductor.lower.host.numbers import MAX_INT64
from fxstack_inductor.torch_compat import PythonPrinter


def size_expr(value: Any) -> Expr:
    """Return an int or SymInt as an ``Expr``."""
    if isinstance(value, torch.SymInt):
        environment = value.node.shape_env
        if _is_known_to_be_one(value):
            return integer(1)
        return convert(value.node.expr, {} if environment is None else environment.var_to_range)
    return integer(int(value))


def _is_known_to_be_one(value: torch.SymInt) -> bool:
    """Whether tracing has guarded that a computed size is 1; such a size broadcasts."""
    node = value.node
    if node.expr.is_Symbol or node.expr.is_Integer or (node.has_hint() and node.hint != 1):
        return False
    return bool(statically_known_true(value == 1))


def may_exceed_word(value: torch.SymInt) -> bool:
    """Whether an integer that is computed from data, and not from sizes alone, may need more than 64 bits."""
    expr, environment = value.node.expr, value.node.shape_env
    if expr.is_Symbol or free_unbacked_symbols(value) <= environment.size_like:
        return False
    interval = environment.bound_sympy(expr)
    return not (interval.lower >= -MAX_INT64 - 1 and interval.upper <= MAX_INT64)


def convert(expr: sympy.Basic, ranges: Mapping[Any, Any]) -> Expr:
    """Return ``expr`` as an ``Expr``; ``ranges`` maps a sympy symbol to the known interval of its values."""
    if expr.is_Integer:
        return integer(int(expr))
    if expr.is_Symbol:
        return _variable(str(expr), expr, ranges, "")
    rule = CONVERSIONS.get(type(expr).__name__)
    if rule is None or not all(arg.is_integer for arg in expr.args):
        return _defined(expr, ranges)
    try:
        return rule(*(convert(arg, ranges) for arg in expr.args))
    except NotLowered:
        return _defined(expr, ranges)


def _variable(name: str, expr: sympy.Expr, ranges: Mapping[Any, Any], definition: str) -> Expr:
    """Return a variable for ``expr``; a variable of nonnegative values is a size, which bounds analysis can use."""
    interval = ranges.get(expr)
    nonnegative = bool(expr.is_nonnegative) or (interval is not None and bool(interval.lower >= 0))
    return of_atom(Var(name, VarKind.SIZE if nonnegative else VarKind.INTEGER, definition=definition))


def _defined(expr: sympy.Expr, ranges: Mapping[Any, Any]) -> Expr:
    """Return a variable that the host computes by the Python text of ``expr``."""
    if not expr.is_integer:
        raise NotLowered(f"size expression {expr} that is no integer")
    text = PythonPrinter().doprint(expr)
    name = f"size_{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    names = ",".join(sorted(str(symbol) for symbol in expr.free_symbols))
    return _variable(name, expr, ranges, f"lambda {names}: {text}")


def hints(values: Iterable[Any]) -> dict[str, int]:
    """Return the traced sizes of the graph's symbols by name, read from fake values."""
    sizes: dict[str, int] = {}
    for value in values:
        numbers = [value]
        if isinstance(value, torch.Tensor):
            numbers = [*value.shape, *value.stride()]
        for number in numbers:
            if isinstance(number, torch.SymInt) and number.node.hint is not None:
                sizes[str(number.node.expr)] = int(number.node.hint)
    return sizes


def evaluator(definition: str) -> tuple[Callable[..., int], tuple[str, ...]]:
    """Return the function that a variable's ``definition`` denotes, and the names of its arguments."""
    function: Callable[..., int] = eval(definition, {"math": math, "torch": torch, "Where": _where})  # noqa: S307 - printed from a size expression
    vars(function)["definition"] = definition
    return function, function.__code__.co_varnames[: function.__code__.co_argcount]


def definition_of(function: object) -> str | None:
    """Return the text of a function that ``evaluator`` has made; None for another object."""
    return vars(function).get("definition") if isinstance(function, FunctionType) else None


def _where(condition: bool, true: int, false: int) -> int:
    """Return a case of a size expression; definitions call it ``Where``."""
    return true if condition else false


def _power(base: Expr, exponent: Expr) -> Expr:
    """Return a power with a constant exponent as a product."""
    times = exponent.as_int()
    if times is None or times < 0:
        raise NotLowered(f"size expression ({base}) ** ({exponent})")
    return reduce(lambda total, _: total * base, range(times), ONE)


def _extremum(name: str) -> Callable[..., Expr]:
    """Return a conversion of ``Max`` or ``Min`` with any number of arguments."""
    return lambda *args: reduce(lambda a, b: extremum(name, a, b), args)


def _quotient(make: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """Return a conversion by ``make`` that declines a divisor that may be negative: ``Expr`` divides by positive numbers."""

    def rule(num: Expr, den: Expr) -> Expr:
        """Return the quotient or remainder, unless the divisor may be negative."""
        if not den.is_positive() and (den.as_int() is not None or den.bounds()[0] is None):
            raise NotLowered(f"division by {den}, which may be negative")
        return make(num, den)

    return rule


CONVERSIONS: dict[str, Callable[..., Expr]] = {
    "Add": lambda *args: sum(args, ZERO),
    "Mul": lambda *args: reduce(lambda a, b: a * b, args, ONE),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": _quotient(floordiv),
    "CleanDiv": _quotient(floordiv),
    "Mod": _quotient(mod),
    "PythonMod": _quotient(mod),
    "ModularIndexing": lambda base, den, size: _quotient(mod)(_quotient(floordiv)(base, den), size),
    "Identity": lambda x: x,
    "Max": _extremum("max"),
    "Min": _extremum("min"),
}
"""Conversions by the name of the sympy class; other classes become variables with a definition."""
