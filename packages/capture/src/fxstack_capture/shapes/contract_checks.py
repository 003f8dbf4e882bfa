"""Whether a program satisfies its shape contract: one graph must serve every value of a named dimension.

Each assumption of a trace about its symbols is a guard. For a named dimension the trace must not assume more
than the contract declares: not one value, not equality with another dimension, not a smaller range, and not a
branch that other values would not take. This module evaluates the guards on values in the range of the
contract. The error names the first value that violates a guard, with the user's line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sympy

from fxstack_capture.shapes.contract import ShapeContractError
from fxstack_capture.shapes.geometry import Geometry, NamedSymbol
from fxstack_capture.shapes.symbolic.words import at_line, readable

# Limits: the check evaluates about 300 values of a range, and some combinations of several names. A guard
# that none of these values violates stays a guard, so a call that violates the guard compiles again.

_ENOUGH = 2**47
"""No tensor has more elements than there are addresses. A greater upper bound excludes no tensor."""
_NEAR = 40
_SUGGESTED = 16
_COMBINATIONS = 400


def check_contract(geometry: Geometry) -> None:
    """Raise ``ShapeContractError`` if the trace does not hold for all sizes that the contract allows."""
    if not geometry.named:
        return
    named = list(geometry.named.values())
    problems = [*_fixed(geometry, named), *_same(geometry, named)]
    if not problems:
        problems = [*_branches(geometry, named)] or [*_narrowed(geometry, named)]
    if problems:
        listed = "\n".join(f"  {problem}" for problem in dict.fromkeys(problems))
        raise ShapeContractError(f"the program does not keep to its shape contract:\n{listed}")


def _name(named: NamedSymbol) -> str:
    return named.solved.root.name


def _resolved(geometry: Geometry, expr: sympy.Basic) -> Any:
    """Return ``expr`` with every symbol replaced by the expression that ShapeEnv found equal to it."""
    for _ in range(len(geometry.env.replacements) + 1):
        known = {s: r for s in expr.free_symbols if (r := geometry.env.replacements.get(s))}
        if not known:
            break
        expr = expr.xreplace(known)
    return expr


def _fixed(geometry: Geometry, named: list[NamedSymbol]) -> Iterator[str]:
    for one in named:
        value = _resolved(geometry, one.symbol)
        if value.is_number:
            yield (
                f"{_name(one)} ({one.solved.seen}) is a named dimension, but the program works only for {_name(one)} == {value}"
                f"{_because(geometry, one.symbol)}\n"
                f"  fix: make this line work for other sizes, or write {value}, Dim.STATIC or Dim.AUTO in the contract."
            )


def _same(geometry: Geometry, named: list[NamedSymbol]) -> Iterator[str]:
    """Yield an error for each name that must equal another name, or that follows from another expression."""
    by_value: dict[sympy.Basic, NamedSymbol] = {}
    for one in named:
        value = _resolved(geometry, one.symbol)
        if value.is_number:
            continue
        other = by_value.setdefault(value, one)
        if other is not one:
            yield (
                f"{_name(other)} ({other.solved.seen}) and {_name(one)} ({one.solved.seen}) are two named dimensions, but the "
                f"program needs {_name(one)} == {_name(other)}{_because(geometry, one.symbol, other.symbol)}\n"
                f"  fix: use {_name(other)} for both."
            )
        elif not value.is_Symbol:
            yield (
                f"{_name(one)} ({one.solved.seen}) is a named dimension, but the program needs {_name(one)} == "
                f"{_in_words(geometry, value)}{_because(geometry, one.symbol)}\n"
                f"  fix: write this formula or Dim.AUTO in the contract."
            )


def _branches(geometry: Geometry, named: list[NamedSymbol]) -> Iterator[str]:
    """Yield an error for each guard on named dimensions alone that does not hold in their whole ranges."""
    symbols = {_resolved(geometry, one.symbol): one for one in named}
    seen = set()
    for guard, stack in geometry.env.guard_stacks:
        expr = _resolved(geometry, guard)
        if expr in seen or not expr.free_symbols or not expr.free_symbols <= symbols.keys():
            continue
        seen.add(expr)
        concerned = [symbols[symbol] for symbol in sorted(expr.free_symbols, key=str)]
        found = _counterexample(geometry, expr, concerned)
        if found is not None:
            values = ", ".join(f"{_name(one)} = {value}" for one, value in found)
            yield (
                f"the program takes another path for {values}, because of{at_line(_in_words(geometry, guard), stack)}\n"
                f"  fix: {_suggestion(geometry, expr, concerned)}."
            )


def _narrowed(geometry: Geometry, named: list[NamedSymbol]) -> Iterator[str]:
    """Yield an error for each range that became smaller without a guard that shows it.

    A range can shrink this way if the dimension equals another dimension with a smaller range.
    """
    for one in named:
        symbol = _resolved(geometry, one.symbol)
        known = geometry.env.var_to_range[symbol]
        low = max(one.lowest, int(known.lower))
        high = min(one.highest, known.upper)
        if low > one.lowest or (high != one.highest and high < _ENOUGH):
            yield (
                f"{_name(one)} ({one.solved.seen}) is {one.solved.root}, but the program works only from {low} to {high}"
                f"{_because(geometry, one.symbol)}\n"
                "  fix: give the dimension this range, or use Dim.AUTO."
            )


# --- trying values ---------------------------------------------------------------------------------


def _holds(expr: sympy.Basic, values: dict[sympy.Basic, sympy.Integer]) -> bool:
    return expr.xreplace(values) is not sympy.false


def _values(one: NamedSymbol) -> list[int]:
    """Return test values in the range of ``one``.

    They are near the ends of the range, near the present value, and near powers of two.
    """
    low, high, now = one.lowest, one.highest, one.solved.value
    top = int(high) if high < _ENOUGH else _ENOUGH
    near = itertools.chain(range(now - _NEAR, now + _NEAR), range(low, low + _NEAR), range(top - 2, top + 1))
    powers = (2**n + d for n in range(48) for d in (-1, 0, 1))
    return [now, *sorted({v for v in itertools.chain(near, powers) if low <= v <= top} - {now})]


def _counterexample(
    geometry: Geometry, expr: sympy.Basic, concerned: list[NamedSymbol]
) -> list[tuple[NamedSymbol, int]] | None:
    symbols = [_resolved(geometry, one.symbol) for one in concerned]
    tried = [_values(one) for one in concerned]
    for values in _combinations(tried):
        if not _holds(expr, dict(zip(symbols, map(sympy.Integer, values), strict=True))):
            return list(zip(concerned, values, strict=True))
    return None


def _combinations(tried: list[list[int]]) -> Iterable[tuple[int, ...]]:
    """Return all values of a single dimension, or a few combinations of values of several dimensions."""
    if len(tried) == 1:
        return ((value,) for value in tried[0])
    each = max(2, int(_COMBINATIONS ** (1 / len(tried))))
    spread = [values[:: max(1, len(values) // each)] for values in tried]
    return itertools.islice(itertools.product(*spread), 4 * _COMBINATIONS)


def _suggestion(geometry: Geometry, expr: sympy.Basic, concerned: list[NamedSymbol]) -> str:
    general = "change this line, or use Dim.AUTO or Dim.DYNAMIC"
    if len(concerned) > 1:
        return general
    one = concerned[0]
    symbol, now = _resolved(geometry, one.symbol), one.solved.value

    def holds(value: int) -> bool:
        return _holds(expr, {symbol: sympy.Integer(value)})

    step = next((p for p in range(2, _SUGGESTED) if _is_periodic(holds, now, p)), None)
    if step is not None:
        rest = now % step
        return f"{general}, or say {step}*_{_name(one)}{f' + {rest}' if rest else ''} in its place"
    broken = [value for value in _values(one) if not holds(value)]
    low = max((value for value in broken if value < now), default=None)
    high = min((value for value in broken if value > now), default=None)
    bounds = [] if low is None else [f"min={_edge(holds, now, low)}"]
    bounds += [] if high is None else [f"max={_edge(holds, now, high)}"]
    return f"{general}, or narrow it: Dim({_name(one)!r}, {', '.join(bounds)})"


def _edge(holds: Callable[[int], bool], inside: int, outside: int) -> int:
    """Return the last value from ``inside`` towards ``outside`` for which ``holds`` is true, by bisection."""
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def _is_periodic(holds: Callable[[int], bool], now: int, step: int) -> bool:
    return all(holds(now + k * step) and not holds(now + k * step + 1) for k in range(1, 4))


# --- words -----------------------------------------------------------------------------------------


def _in_words(geometry: Geometry, expr: sympy.Basic) -> str:
    return readable(geometry, expr, {})


def _because(geometry: Geometry, *symbols: sympy.Basic) -> str:
    """Return the first assumption about all of ``symbols``, with its line.

    If there is none, return the first assumption about one of ``symbols``.
    """
    wanted = set(symbols)
    for expr, stack in geometry.env.guard_stacks:
        if wanted <= expr.free_symbols and stack:
            return f", because of{at_line(_in_words(geometry, expr), stack)}"
    assumed = [(e, s) for e, s in geometry.env.guard_stacks if s and wanted & e.free_symbols]
    return f", because of{at_line(_in_words(geometry, assumed[0][0]), assumed[0][1])}" if assumed else ""
