"""Facts about symbols in the user's names, and the line that they come from."""

from __future__ import annotations

import sympy

from fxstack_capture.shapes.geometry import Geometry
from fxstack_capture.shapes.symbolic.env import UserStack
from fxstack_capture.sources import Size, Source


def readable(geometry: Geometry, expr: sympy.Basic, names: dict[sympy.Symbol, Source]) -> str:
    """The expression in the user's names."""
    shown = {
        symbol: sympy.Symbol(shown_name(geometry, source))
        for symbol in expr.free_symbols
        if (source := names.get(symbol) or geometry.source_of(symbol)) is not None
    }
    # Different assumptions on the new symbols must not let sympy evaluate anything.
    with sympy.evaluate(False):
        return str(expr.xreplace(shown))


def shown_name(geometry: Geometry, source: Source) -> str:
    """The source's name, by the names that a shape contract has for the arguments."""
    if isinstance(source, Size) and source.of in geometry.argument_names:
        return f"{geometry.argument_names[source.of]}.size({source.dim})"
    return source.name


def at_line(text: str, stack: UserStack) -> str:
    """A fact, and below it the user's innermost line (none where the backend assumed it)."""
    if not stack:
        return f"\n  {text}\n  (assumed by the backend)"
    file, line, function = stack[-1]
    return f'\n  {text}\n  File "{file}", line {line}, in {function}'
