"""Expressions with the user's names in place of symbols, and the user's line that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import sympy

from fxstack_capture.shapes.geometry import Geometry
from fxstack_capture.shapes.symbolic.env import UserStack
from fxstack_capture.sources import Size, Source


def readable(
    geometry: Geometry, expr: sympy.Basic, names: Mapping[sympy.Symbol, Source] = MappingProxyType({})
) -> str:
    """Return ``expr`` as text with the user's names in place of symbols, such as ``x.size(0) > 3``.

    Error messages and the texts of guards use it. ``names`` has the sources of additional symbols.
    """
    shown = {
        symbol: sympy.Symbol(shown_name(geometry, source))
        for symbol in expr.free_symbols
        if (source := names.get(symbol) or geometry.source_of(symbol)) is not None
    }
    # The new symbols have different assumptions. ``evaluate(False)`` keeps sympy from using these to simplify
    # the expression.
    with sympy.evaluate(False):
        return str(expr.xreplace(shown))


def shown_name(geometry: Geometry, source: Source) -> str:
    """Return the name of a source in messages.

    If a shape contract names the argument, the size of the argument has that name.
    """
    if isinstance(source, Size) and source.of in geometry.argument_names:
        return f"{geometry.argument_names[source.of]}.size({source.dim})"
    return source.name


def at_line(text: str, stack: UserStack) -> str:
    """Return the text of a fact, followed by the user's innermost line in ``stack``.

    An empty stack means that the fact is an assumption of the backend.
    """
    if not stack:
        return f"\n  {text}\n  (assumed by the backend)"
    file, line, function = stack[-1]
    return f'\n  {text}\n  File "{file}", line {line}, in {function}'


def because(geometry: Geometry, *symbols: sympy.Basic) -> str:
    """Return the phrase of a message that names the assumption about ``symbols`` and the user's line.

    The first assumption about all of the symbols is taken. Without one, the first assumption about any of
    them is taken. Return "" if there is none.
    """
    wanted = set(symbols)
    stacks = [
        (expr, stack) for expr, stack in geometry.env.guard_stacks if stack and wanted & expr.free_symbols
    ]
    for expr, stack in (*(pair for pair in stacks if wanted <= pair[0].free_symbols), *stacks):
        return f", because of{at_line(readable(geometry, expr), stack)}"
    return ""
