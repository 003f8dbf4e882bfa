"""The assumptions of a ShapeEnv as guard records over sources.

Four kinds of guards cover all assumptions. First, a number that shares a symbol, or follows from other
numbers, equals its expression. Second, every symbol is in its range. Third, every comparison that tracing
decided holds. Fourth, ``TensorIs`` covers sizes that stayed plain integers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import sympy

from fxstack_capture.guards.records import Guard, ShapeHolds
from fxstack_capture.shapes.contract import ShapeContractError
from fxstack_capture.shapes.contract_checks import check_contract
from fxstack_capture.shapes.geometry import Geometry
from fxstack_capture.shapes.symbolic.env import UserStack
from fxstack_capture.shapes.symbolic.floats import as_functions
from fxstack_capture.shapes.symbolic.words import because, readable, shown_name
from fxstack_capture.sources import Source
from fxstack_capture.torch_compat import SymT, int_oo, symbol_is_type

_LARGEST = sympy.Float(sys.float_info.max)
"""The largest finite float."""

Located = tuple["Source", ShapeHolds, "UserStack"]
"""A triple: the source of the guard, the guard, and the user's stack."""


def shape_guards(geometry: Geometry) -> list[Located]:
    """Return the guards on symbolic numbers, as tuples (source, record, user's stack).

    Raises:
        ShapeContractError: the guards demand more than the contract allows.
    """
    if not geometry.is_used:
        return []
    check_contract(geometry)
    env = geometry.env
    fixed = _specialised_symbols(geometry)
    conditions = [
        *((expr, names, ()) for expr, names in _equalities(geometry)),
        *((expr, {}, ()) for expr in _ranges(geometry, fixed)),
        *(
            (_equals_value(geometry, symbol, value), {}, _stack_of_first_guard(geometry, symbol))
            for symbol, value in fixed.items()
        ),
    ]
    backed = geometry.primary.keys() - env.drawn
    computed = geometry.computed
    for expr, stack in env.guard_stacks:
        rest = as_functions(expr.xreplace(fixed), computed)
        if rest is not sympy.true and rest.free_symbols <= backed:
            conditions.append((rest, {}, stack))
    # One ``evaluate(False)`` covers all calls of ``readable``. Each change of this setting empties sympy's
    # cache.
    with sympy.evaluate(False):
        located = [_record(geometry, expr, names, stack) for expr, names, stack in conditions]
    return [guard for guard in located if guard is not None]


def is_demand_of_unbacked(guard: Guard | None) -> bool:
    """Whether a guard is about an unbacked size.

    The driver asks this if a guard of new code fails for the traced call. A guard on an unbacked size may
    fail then, because tracing does not know the size.
    """
    return (
        guard is not None
        and isinstance(guard.check, ShapeHolds)
        and any(symbol_is_type(symbol, SymT.UNBACKED_INT) for symbol, _ in guard.check.symbols)
    )


def check_strict(geometry: Geometry) -> None:
    """Raise ShapeContractError if a dimension in ``Geometry.strict`` became a constant.

    Called when the trace is complete.
    """
    for symbol, source in geometry.strict.items():
        value = geometry.env.replacements.get(symbol, symbol) if symbol.is_Symbol else symbol
        if value.is_number:
            name = shown_name(geometry, source)
            raise ShapeContractError(
                f"{name} was marked dynamic, but the program works only for {name} == "
                f"{value}{_because(geometry, symbol)}\n"
                f"fix: make the program work for other values of {name}. Or mark the dimension with maybe_mark_dynamic,"
                " or not at all, which allows a specialised graph."
            )


def _because(geometry: Geometry, symbol: sympy.Basic) -> str:
    """Return the phrase in the error of ``check_strict`` that says why a symbol became a constant."""
    if not symbol.is_Symbol:
        return ": sizes 0 and 1 are always specialised, because broadcasting depends on them."
    return because(geometry, symbol) or "."


def _specialised_symbols(geometry: Geometry) -> dict[sympy.Symbol, sympy.Basic]:
    """Return the symbols that the trace assumed to have one value: symbol -> value."""
    defined = geometry.primary.keys()
    fixed = {
        symbol: value
        for symbol in (*geometry.primary, *geometry.computed)
        if (value := geometry.env.replacements.get(symbol)) is not None and value.is_number
    }
    return {
        symbol: value
        for symbol, value in fixed.items()
        if symbol in defined or as_functions(symbol, geometry.computed).free_symbols <= defined
    }


def _equals_value(geometry: Geometry, symbol: sympy.Symbol, value: sympy.Basic) -> sympy.Basic:
    """Return the condition that a specialised symbol has its value."""
    return sympy.Eq(as_functions(symbol, geometry.computed), value, evaluate=False)


def _stack_of_first_guard(geometry: Geometry, symbol: sympy.Symbol) -> UserStack:
    """Return the user's stack of the first guard that contains a symbol. () if there is no such guard."""
    stacks = [s for expr, s in geometry.env.guard_stacks if symbol in expr.free_symbols]
    return stacks[0] if stacks else ()


def _equalities(geometry: Geometry) -> Iterator[tuple[sympy.Basic, dict[sympy.Symbol, Source]]]:
    """Yield, for each bound number, the condition that it equals its expression.

    Each condition comes with a map from the number's symbol to its source. A number that defines a symbol
    needs no condition.
    """
    for index, binding in enumerate(geometry.bindings):
        first = geometry.primary.get(binding.expr)
        if first is None or first[0] != binding.source:
            number = sympy.Symbol(f"n{index}", integer=binding.expr.is_integer)
            yield sympy.Eq(number, binding.expr, evaluate=False), {number: binding.source}


def _ranges(geometry: Geometry, fixed: dict[sympy.Symbol, sympy.Basic]) -> Iterator[sympy.Basic]:
    """Yield for each symbol the condition that it is in the range that the trace assumed."""
    for symbol in geometry.primary:
        value_range = geometry.env.var_to_range.get(symbol)
        if value_range is None or symbol in fixed or symbol in geometry.env.drawn:
            continue
        # With evaluation, sympy would drop the check because of the symbol's assumptions (positive).
        if symbol.is_integer is None:  # The symbol is a float. The trace is valid for finite numbers.
            yield sympy.Ge(symbol, -_LARGEST, evaluate=False)
            yield sympy.Le(symbol, _LARGEST, evaluate=False)
        if value_range.lower not in (-int_oo, -sympy.oo):
            yield sympy.Ge(symbol, value_range.lower, evaluate=False)
        if value_range.upper not in (int_oo, sympy.oo):
            yield sympy.Le(symbol, value_range.upper, evaluate=False)


def _record(
    geometry: Geometry, expr: sympy.Basic, names: dict[sympy.Symbol, Source], stack: UserStack
) -> Located | None:
    """Return the condition ``expr`` as a guard at the source of its first symbol. None if it has no symbol.

    ``names`` has the sources of symbols that are not in ``Geometry.primary``.
    """
    symbols = sorted(expr.free_symbols, key=str)
    if not symbols:
        return None
    bound = tuple((s, names[s] if s in names else geometry.primary[s][0]) for s in symbols)
    return bound[0][1], ShapeHolds(expr, bound, readable(geometry, expr, names)), stack
