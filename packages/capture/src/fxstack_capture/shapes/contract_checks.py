"""Whether a program satisfies its shape contract: one graph must serve every value of a named dimension.

Each assumption of a trace about its symbols is a guard. The trace must not assume more about a named
dimension than the contract declares. It must not assume one value, equality with another dimension, or a
smaller range. It must not take a branch that some value in the range would not take. This module evaluates
the guards on values in the range of the contract. The error names the first value that violates a guard, with
the user's line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sympy

from fxstack_capture.shapes.contract import ShapeContractError
from fxstack_capture.shapes.geometry import Geometry, NamedSymbol
from fxstack_capture.shapes.symbolic.words import at_line, because, readable

# Limits: the check evaluates about 300 values of a range, and some combinations of several names. If none of
# these values violates a guard, the guard stays, and a call that violates it compiles again.

_MAX_SIZE = 2**47
"""The largest size that matters, the number of addresses. A greater upper bound excludes no tensor."""
_NEIGHBOURS = 40
"""How many values are tried on each side of the call's value, and above the lower end."""
_MAX_STEP = 16
"""The largest period that ``_suggestion`` tries, such as 8 in ``8*_b``."""
_MAX_COMBINATIONS = 400
"""Approximate limit of the combinations of values that are tried for several names."""


def check_contract(geometry: Geometry) -> None:
    """Raise ``ShapeContractError`` if the trace does not hold for all sizes that the contract allows.

    ``shape_guards`` calls this when the trace is complete, before it makes the guards.
    """
    if not geometry.named:
        return
    named = list(geometry.named.values())
    problems = [*_report_fixed_names(geometry, named), *_report_equal_names(geometry, named)]
    # If a name has only one value, most guards fail. Their errors would only repeat the first error.
    if not problems:
        problems = [*_report_branches(geometry, named)] or [*_report_narrowed_ranges(geometry, named)]
    if problems:
        listed = "\n".join(f"  {problem}" for problem in dict.fromkeys(problems))
        raise ShapeContractError(f"the program does not keep to its shape contract:\n{listed}")


def _resolve(geometry: Geometry, expr: sympy.Basic) -> Any:
    """Return ``expr`` with each symbol replaced by the expression that ShapeEnv knows to be equal."""
    for _ in range(len(geometry.env.replacements) + 1):
        replaced = {s: r for s in expr.free_symbols if (r := geometry.env.replacements.get(s))}
        if not replaced:
            break
        expr = expr.xreplace(replaced)
    return expr


def _report_fixed_names(geometry: Geometry, named: list[NamedSymbol]) -> Iterator[str]:
    """Yield an error for each name that the trace fixed to one value."""
    for dimension in named:
        value = _resolve(geometry, dimension.symbol)
        if value.is_number:
            yield (
                f"{dimension.label} is a named dimension, but the program works only for {dimension.name} == {value}"
                f"{because(geometry, dimension.symbol)}\n"
                f"  fix: make this line work for other sizes, or write {value}, Dim.STATIC or Dim.AUTO in the contract."
            )


def _report_equal_names(geometry: Geometry, named: list[NamedSymbol]) -> Iterator[str]:
    """Yield an error for each name that the trace assumed to equal another name or an expression."""
    by_value: dict[sympy.Basic, NamedSymbol] = {}
    for dimension in named:
        value = _resolve(geometry, dimension.symbol)
        if value.is_number:
            continue
        other = by_value.setdefault(value, dimension)
        if other is not dimension:
            yield (
                f"{other.label} and {dimension.label} are two named dimensions, but the "
                f"program needs {dimension.name} == {other.name}{because(geometry, dimension.symbol, other.symbol)}\n"
                f"  fix: use {other.name} for both."
            )
        elif not value.is_Symbol:
            yield (
                f"{dimension.label} is a named dimension, but the program needs {dimension.name} == "
                f"{readable(geometry, value)}{because(geometry, dimension.symbol)}\n"
                f"  fix: write this formula or Dim.AUTO in the contract."
            )


def _report_branches(geometry: Geometry, named: list[NamedSymbol]) -> Iterator[str]:
    """Yield an error for each guard that does not hold in the whole ranges of its named dimensions.

    Guards that contain further symbols are skipped, because the contract does not describe those sizes.
    """
    symbols = {_resolve(geometry, dimension.symbol): dimension for dimension in named}
    checked = set()
    for guard, stack in geometry.env.guard_stacks:
        expr = _resolve(geometry, guard)
        if expr in checked or not expr.free_symbols or not expr.free_symbols <= symbols.keys():
            continue
        checked.add(expr)
        concerned = [symbols[symbol] for symbol in sorted(expr.free_symbols, key=str)]
        counterexample = _counterexample(geometry, expr, concerned)
        if counterexample is not None:
            values = ", ".join(f"{dimension.name} = {value}" for dimension, value in counterexample)
            yield (
                f"the program takes another path for {values}, because of{at_line(readable(geometry, guard), stack)}\n"
                f"  fix: {_suggestion(geometry, expr, concerned)}."
            )


def _report_narrowed_ranges(geometry: Geometry, named: list[NamedSymbol]) -> Iterator[str]:
    """Yield an error for each name whose range the trace narrowed without a guard.

    This happens if the dimension equals another dimension with a smaller range.
    """
    for dimension in named:
        symbol = _resolve(geometry, dimension.symbol)
        assumed = geometry.env.var_to_range[symbol]
        low = max(dimension.lowest, int(assumed.lower))
        high = min(dimension.highest, assumed.upper)
        if low > dimension.lowest or (high != dimension.highest and high < _MAX_SIZE):
            yield (
                f"{dimension.label} is {dimension.solved.root}, but the program works only from {low} to {high}"
                f"{because(geometry, dimension.symbol)}\n"
                "  fix: give the dimension this range, or use Dim.AUTO."
            )


# --- trying values ---------------------------------------------------------------------------------


def _holds(expr: sympy.Basic, values: dict[sympy.Basic, sympy.Integer]) -> bool:
    """Whether the guard ``expr`` holds for these values of its symbols."""
    return expr.xreplace(values) is not sympy.false


def _values(dimension: NamedSymbol) -> list[int]:
    """Return the values of ``dimension`` to try, all of them in its range.

    They are near the ends of the range, near the call's value, and near powers of two.
    """
    low, high, present = dimension.lowest, dimension.highest, dimension.solved.value
    top = int(high) if high < _MAX_SIZE else _MAX_SIZE
    near = itertools.chain(
        range(present - _NEIGHBOURS, present + _NEIGHBOURS),
        range(low, low + _NEIGHBOURS),
        range(top - 2, top + 1),
    )
    # Guards often compare sizes with powers of two: alignments, and limits of 32-bit indices.
    powers = (2**n + d for n in range(48) for d in (-1, 0, 1))
    return [present, *sorted({v for v in itertools.chain(near, powers) if low <= v <= top} - {present})]


def _counterexample(
    geometry: Geometry, expr: sympy.Basic, concerned: list[NamedSymbol]
) -> list[tuple[NamedSymbol, int]] | None:
    """Return values that violate the guard ``expr``, as pairs (dimension, value).

    Return None if no combination that was tried violates the guard.
    """
    symbols = [_resolve(geometry, dimension.symbol) for dimension in concerned]
    tried = [_values(dimension) for dimension in concerned]
    for values in _combinations(tried):
        if not _holds(expr, dict(zip(symbols, map(sympy.Integer, values), strict=True))):
            return list(zip(concerned, values, strict=True))
    return None


def _combinations(tried: list[list[int]]) -> Iterable[tuple[int, ...]]:
    """Return the combinations of values to try.

    ``tried`` has the values of each dimension. For a single dimension, all values are tried. For several
    dimensions, only a part is tried.
    """
    if len(tried) == 1:
        return ((value,) for value in tried[0])
    # sympy evaluates the guard for each combination, so each name gets only a few values.
    each = max(2, int(_MAX_COMBINATIONS ** (1 / len(tried))))
    spread = [values[:: max(1, len(values) // each)] for values in tried]
    return itertools.islice(itertools.product(*spread), 4 * _MAX_COMBINATIONS)


def _suggestion(geometry: Geometry, expr: sympy.Basic, concerned: list[NamedSymbol]) -> str:
    """Return the advice that follows "fix:" in an error about the guard ``expr``.

    If the guard holds exactly for multiples of a number, or for a smaller range, the advice names these.
    """
    general = "change this line, or use Dim.AUTO or Dim.DYNAMIC"
    if len(concerned) > 1:
        return general
    dimension = concerned[0]
    symbol, present = _resolve(geometry, dimension.symbol), dimension.solved.value

    def holds(value: int) -> bool:
        """Whether the guard holds for this value of the dimension."""
        return _holds(expr, {symbol: sympy.Integer(value)})

    step = next((p for p in range(2, _MAX_STEP) if _is_periodic(holds, present, p)), None)
    if step is not None:
        remainder = present % step
        return (
            f"{general}, or say {step}*_{dimension.name}{f' + {remainder}' if remainder else ''} in its place"
        )
    broken = [value for value in _values(dimension) if not holds(value)]
    low = max((value for value in broken if value < present), default=None)
    high = min((value for value in broken if value > present), default=None)
    bounds = [] if low is None else [f"min={_edge(holds, present, low)}"]
    bounds += [] if high is None else [f"max={_edge(holds, present, high)}"]
    return f"{general}, or narrow it: Dim({dimension.name!r}, {', '.join(bounds)})"


def _edge(holds: Callable[[int], bool], inside: int, outside: int) -> int:
    """Return the last value on the way from ``inside`` to ``outside`` for which ``holds`` is true, by
    bisection.
    """
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def _is_periodic(holds: Callable[[int], bool], present: int, step: int) -> bool:
    """Whether the guard holds for ``present`` plus small multiples of ``step``, and not for the values beside
    them.
    """
    return all(holds(present + k * step) and not holds(present + k * step + 1) for k in range(1, 4))
