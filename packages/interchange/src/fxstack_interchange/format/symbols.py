"""The symbols of a file: described from a ShapeEnv on saving, declared in a new ShapeEnv on loading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fxstack_interchange.fake_mode import make_fake_mode
from fxstack_interchange.format.errors import LoadError
from fxstack_interchange.format.expressions import from_text
from fxstack_interchange.torch_compat import FakeTensorMode, ValueRanges, int_oo

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ASSUMPTIONS = ("integer", "positive", "nonnegative")


def describe_symbol(symbol: sympy.Symbol, shape_env: object) -> dict[str, Any]:
    """Return a symbol's name, value at capture, range and sympy assumptions as JSON."""
    hints = _hints(shape_env)
    bounds = getattr(shape_env, "var_to_range", {}).get(symbol)
    hint = hints.get(symbol)
    return {
        "name": str(symbol),
        "hint": _number(hint),
        "lower": _number(bounds.lower) if bounds is not None else None,
        "upper": _number(bounds.upper) if bounds is not None else None,
        "assumptions": [a for a in _ASSUMPTIONS if getattr(symbol, f"is_{a}")],
    }


def _hints(shape_env: object) -> dict[sympy.Symbol, Any]:
    """Return the values of the symbols at capture. The attribute's name depends on the release of torch."""
    backed = getattr(shape_env, "backed_var_to_val", None)
    return backed if backed is not None else getattr(shape_env, "var_to_val", {})


def _number(value: object) -> int | float | None:
    """Return a number that JSON holds exactly; None for an infinity, which means no bound."""
    if value is None or value in (int_oo, -int_oo, sympy.oo, -sympy.oo):
        return None
    if isinstance(value, sympy.Integer | int):
        return int(value)
    return float(value) if isinstance(value, sympy.Float | float) else None


def symbols_in(value: object) -> Iterator[tuple[sympy.Symbol, Any]]:
    """Yield every symbol in a node's value, with the ShapeEnv that the symbol belongs to."""
    if isinstance(value, SYMBOLIC):
        for symbol in sorted(value.node.expr.free_symbols, key=str):
            yield symbol, value.node.shape_env
    elif isinstance(value, torch.Tensor):
        for part in tensor_geometry(value):
            yield from symbols_in(part)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from symbols_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from symbols_in(item)


def tensor_geometry(value: torch.Tensor) -> tuple[Any, ...]:
    """Return sizes, strides and storage offset. For a layout without strides, return only the sizes."""
    if value.layout is not torch.strided:
        return tuple(value.shape)
    return (*value.shape, *value.stride(), value.storage_offset())


@dataclass(frozen=True)
class SymbolTable:
    """The symbols of a loaded graph and their ShapeEnv, which is None for a graph without symbols."""

    symbols: dict[str, sympy.Symbol]
    shape_env: ShapeEnv | None
    fake_mode: FakeTensorMode

    def expression(self, text: object) -> Any:
        return from_text(text, self.symbols)

    def integer(self, value: object) -> Any:
        """Return an int for a number, and a SymInt for the text of an expression."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        expr = self.expression(value)
        return self._env().create_symintnode(expr, hint=self._hint(expr, int))

    def floating(self, text: object) -> Any:
        """Return a SymFloat for the text of an expression."""
        expr = self.expression(text)
        return self._env().create_symfloatnode(expr, hint=self._hint(expr, float))

    def boolean(self, text: object) -> Any:
        """Return a SymBool for the text of an expression."""
        return self._env().create_symboolnode(self.expression(text))

    def _env(self) -> ShapeEnv:
        """Return the shape environment. Raise LoadError if the file declares no symbols."""
        if self.shape_env is None:
            raise LoadError("a symbolic value in a file that declares no symbols")
        return self.shape_env

    def _hint(self, expr: sympy.Expr, kind: type[int | float]) -> Any:
        """Return the value of an expression at the hints of its symbols; None if a symbol has no hint."""
        hints = _hints(self.shape_env)
        if not expr.free_symbols <= hints.keys():
            return None
        try:
            return kind(expr.xreplace(hints))
        except (TypeError, ValueError) as error:
            raise LoadError(f"size expression {expr} has no value at the hints") from error


def declare(records: list[dict[str, Any]]) -> SymbolTable:
    """Make a ShapeEnv that declares the described symbols, with their ranges and hints."""
    # Making a ShapeEnv imports torch modules, which takes seconds. A graph without symbols does not need one.
    if not records:
        return SymbolTable({}, None, make_fake_mode())
    shape_env = ShapeEnv()
    table: dict[str, sympy.Symbol] = {}
    hints = _hints(shape_env)
    for record in records:
        name = record["name"]
        if name in table:
            raise LoadError(f"symbol {name!r} is declared twice")
        symbol = sympy.Symbol(name, **dict.fromkeys(record["assumptions"], True))
        table[name] = symbol
        is_float = "integer" not in record["assumptions"]
        shape_env.var_to_range[symbol] = _range(record, is_float)
        if record["hint"] is not None:
            number = sympy.Float if is_float else sympy.Integer
            hints[symbol] = number(record["hint"])
    return SymbolTable(table, shape_env, make_fake_mode(shape_env))


def _range(record: dict[str, Any], is_float: bool) -> Any:
    """Return the range of a symbol from its record. A missing bound is infinite. Raise LoadError for an empty range."""
    infinity = sympy.oo if is_float else int_oo
    lower = -infinity if record["lower"] is None else record["lower"]
    upper = infinity if record["upper"] is None else record["upper"]
    if record["lower"] is not None and record["upper"] is not None and lower > upper:
        raise LoadError(f"symbol {record['name']!r} has the empty range {lower}..{upper}")
    return ValueRanges(lower, upper)
