"""Symbolic sizes: their description for the signature, and their values at run time.

Every symbol of a graph is bound by an input: an integer input, or a dimension of a tensor input. From the bindings
comes a function that evaluates any size expression given the call's arguments.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import sympy
import torch

from fxstack_interchange import SymbolSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fxstack_functionalize.inputs import Captured


def symbol_specs(captured: Captured) -> tuple[SymbolSpec, ...]:
    """Describe the symbols that the captured graph's inputs bind, in order of first appearance."""
    shape_env = captured.fake_mode.shape_env
    if shape_env is None:
        return ()
    specs = []
    for symbol in _bindings(captured):
        bounds = shape_env.var_to_range.get(symbol)
        hint = _hint(shape_env, symbol)
        specs.append(
            SymbolSpec(
                str(symbol),
                hint,
                lower=_integer(bounds.lower, 0) if bounds is not None else 0,
                upper=_integer(bounds.upper, None) if bounds is not None else None,
            )
        )
    return tuple(specs)


def evaluator(captured: Captured) -> Callable[[Sequence[Any]], Callable[[torch.SymInt], int]]:
    """Return ``bind`` with ``bind(args)(symint)`` the value of ``symint`` in a call with ``args``."""
    bindings = _bindings(captured)

    def bind(args: Sequence[Any]) -> Callable[[torch.SymInt], int]:
        values = {
            symbol: sympy.Integer(args[index] if dim is None else args[index].size(dim))
            for symbol, (index, dim) in bindings.items()
        }

        def evaluate(size: torch.SymInt) -> int:
            return int(size.node.expr.xreplace(values))

        return evaluate

    return bind


def evaluable(captured: Captured, numbers: Iterable[Any]) -> bool:
    """Whether all ``numbers`` follow from the inputs; sizes that depend on data do not."""
    bound = set(_bindings(captured))
    return all(
        bound.issuperset(number.node.expr.free_symbols)
        for number in numbers
        if isinstance(number, torch.SymInt)
    )


def hint_of(number: int | torch.SymInt) -> int:
    """Return the value seen when the graph was captured; a number that depends on data counts as large."""
    if not isinstance(number, torch.SymInt):
        return number
    hint = number.node.hint
    return sys.maxsize if hint is None else int(hint)


def _bindings(captured: Captured) -> dict[sympy.Symbol, tuple[int, int | None]]:
    found: dict[sympy.Symbol, tuple[int, int | None]] = {}
    for index, spec in enumerate(captured.inputs):
        if isinstance(spec.fake, torch.SymInt):
            expr = spec.fake.node.expr
            if isinstance(expr, sympy.Symbol):
                found.setdefault(expr, (index, None))
    for index, spec in enumerate(captured.inputs):
        if isinstance(spec.fake, torch.Tensor):
            for dim, size in enumerate(spec.fake.shape):
                if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                    found.setdefault(size.node.expr, (index, dim))
    return found


def _hint(shape_env: Any, symbol: sympy.Symbol) -> int | None:
    # torch 2.11 knows the second name only; later ones warn about it
    name = "backed_var_to_val" if hasattr(shape_env, "backed_var_to_val") else "var_to_val"
    table = getattr(shape_env, name, {})
    value = table.get(symbol)
    return None if value is None else _integer(value, None)


def _integer(value: Any, otherwise: int | None) -> Any:
    return int(value) if isinstance(value, (int, sympy.Integer)) else otherwise
