"""Symbolic sizes: their description for the signature, and their values at run time.

An input binds every symbol of a graph: an integer input, or a dimension of a tensor input. From the bindings
the module generates Python functions of the call's arguments, so that no call evaluates a sympy expression.
"""

from __future__ import annotations

import ast
import builtins
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy
import torch

from fxstack_functionalize.torch_compat import PythonPrinter
from fxstack_functionalize.tracer.inputs import Captured
from fxstack_interchange import SymbolSpec

# Limits: graphs with gradients of std, var and cumprod of a size that data decides run in eager. A graph
# whose backend specialises a symbolic size (recurrent layers, by unrolling) is compiled for each size, up to
# the limit. multilabel_margin_loss that trains with symbolic sizes runs in eager, since torch has no fake
# kernel for its backward.


def symbol_specs(captured: Captured) -> tuple[SymbolSpec, ...]:
    """Return specs of the symbols that the captured graph's inputs bind, in order of first appearance."""
    shape_env = captured.fake_mode.shape_env
    if shape_env is None:
        return ()
    specs = []
    for symbol in _bindings(captured):
        bounds = shape_env.var_to_range.get(symbol)
        hint = _as_integer(symbol_values(shape_env).get(symbol), None)
        specs.append(
            SymbolSpec(
                str(symbol),
                hint,
                lower=_as_integer(bounds.lower, 0) if bounds is not None else 0,
                upper=_as_integer(bounds.upper, None) if bounds is not None else None,
            )
        )
    return tuple(specs)


def make_filler(
    captured: Captured, nest: object, computed: Sequence[tuple[sympy.Symbol, int]] = ()
) -> Callable[[Sequence[Any]], Any]:
    """Return a function from a call's arguments to ``nest`` with numbers in place of symbols.

    A nest consists of lists and tuples; other objects in it stay. ``computed``: data-dependent symbols and
    their positions among the graph's results. If there are any, the function takes the pair of arguments and
    results.
    """
    text = _NestText()
    result = text.of(nest)
    if not text.symbolic:
        return lambda _: nest
    bindings = [
        f"    {symbol} = args[{index}]" + ("" if dim is None else f".size({dim})")
        for symbol, (index, dim) in _bindings(captured).items()
        if symbol in text.symbols
    ]
    if computed:
        numbers = [f"    {symbol} = int(results[{position}])" for symbol, position in computed]
        bindings = ["    args, results = args", *numbers, *bindings]
    lines = ["def values(args):", *bindings, f"    return {result}"]
    exec(compile("\n".join(lines), "<fxstack sizes>", "exec"), text.names)  # noqa: S102 - text made here
    values: Callable[[Sequence[Any]], Any] = text.names["values"]
    return values


class _NestText:
    """Writes nests as Python expressions over the names of symbols."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"math": math, "torch": torch}
        self.symbols: set[sympy.Basic] = set()
        self.symbolic = False
        """Whether there is a SymInt. It may stand for a known number."""

    def of(self, value: object) -> str:
        """Return the expression of a nest. Objects get names in ``names``."""
        if isinstance(value, tuple):
            return f"({''.join(f'{self.of(item)}, ' for item in value)})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.of, value))}]"
        if isinstance(value, torch.SymInt):
            self.symbolic = True
            return self._size(value.node.expr)
        if type(value) is int:
            return repr(value)
        name = f"item_{len(self.names)}"
        self.names[name] = value
        return name

    def _size(self, expr: sympy.Expr) -> str:
        """Return the expression of a symbolic size, or a call that evaluates it if Python text cannot."""
        self.symbols |= expr.free_symbols
        parameters = sorted(map(str, expr.free_symbols))
        text: str = PythonPrinter().doprint(expr)
        used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        if all(name in parameters or name in self.names or hasattr(builtins, name) for name in used):
            return text
        name = f"item_{len(self.names)}"
        self.names[name] = _evaluated(expr)
        return f"{name}({', '.join(f'{p}={p}' for p in parameters)})"


def _evaluated(expr: sympy.Expr) -> Callable[..., int]:
    """Return a function that evaluates an expression for which Python text cannot be written."""
    symbols = {str(symbol): symbol for symbol in expr.free_symbols}

    def evaluate(**values: int) -> int:
        return int(expr.xreplace({symbols[k]: sympy.Integer(v) for k, v in values.items()}))

    return evaluate


def is_evaluable(captured: Captured, numbers: Iterable[Any]) -> bool:
    """Whether the inputs determine all ``numbers``; False for data-dependent sizes."""
    symbolic = [number for number in numbers if isinstance(number, torch.SymInt)]
    if not symbolic:  # the usual case, which needs no look at the inputs
        return True
    bound = set(_bindings(captured))
    return all(bound.issuperset(number.node.expr.free_symbols) for number in symbolic)


def find_computed_symbols(
    captured: Captured, numbers: Iterable[torch.SymInt]
) -> dict[sympy.Symbol, torch.SymInt] | None:
    """Return symbol -> number for the data-dependent symbols; None if a symbol occurs only inside of an expression."""
    bound = set(_bindings(captured))
    computed = [number for number in numbers if not bound.issuperset(number.node.expr.free_symbols)]
    symbols = {number.node.expr: number for number in computed if number.node.expr.is_Symbol}
    available = bound | symbols.keys()
    is_complete = all(available.issuperset(number.node.expr.free_symbols) for number in computed)
    return symbols if is_complete else None


def has_symbols(value: object) -> bool:
    """Whether nested lists and tuples hold a symbolic integer, or a tensor with symbolic sizes or strides."""
    if isinstance(value, torch.Tensor):
        return bool(value._has_symbolic_sizes_strides)
    if isinstance(value, (tuple, list)):
        return any(map(has_symbols, value))
    return isinstance(value, torch.SymInt)


def hint_of(number: int | torch.SymInt) -> int:
    """Return the value that a number had at capture. Return ``sys.maxsize`` for a data-dependent number."""
    if not isinstance(number, torch.SymInt):
        return number
    hint = number.node.hint
    return sys.maxsize if hint is None else int(hint)


def _bindings(captured: Captured) -> dict[sympy.Symbol, tuple[int, int | None]]:
    """Return for each symbol the place of its value: (input number, dimension).

    The dimension is None for an input that is a number.
    """
    bindings: dict[sympy.Symbol, tuple[int, int | None]] = {}
    for index, spec in enumerate(captured.inputs):
        if isinstance(spec.fake, torch.SymInt):
            expr = spec.fake.node.expr
            if isinstance(expr, sympy.Symbol):
                bindings.setdefault(expr, (index, None))
    for index, spec in enumerate(captured.inputs):
        if isinstance(spec.fake, torch.Tensor):
            for dim, size in enumerate(spec.fake.shape):
                if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                    bindings.setdefault(size.node.expr, (index, dim))
    return bindings


def symbol_values(shape_env: object) -> dict[sympy.Symbol, Any]:
    """Map each symbol to its value at capture. Data-dependent symbols are missing."""
    # torch 2.11 has the second name only; later versions warn about it.
    name = "backed_var_to_val" if hasattr(shape_env, "backed_var_to_val") else "var_to_val"
    return getattr(shape_env, name, {})


def _as_integer(value: object, otherwise: int | None) -> Any:
    return int(value) if isinstance(value, (int, sympy.Integer)) else otherwise
