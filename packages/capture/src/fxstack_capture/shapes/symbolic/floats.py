"""Arithmetic on symbolic floats, operation by operation.

sympy computes with real numbers: it simplifies ``(a + 0.1) - a`` to 0.1 and ``a * 0.1 * 10`` to ``a``. Both
are wrong for floats. Therefore the result of every operation on floats is a new symbol. A ``Computed``
records the operation and the operands of such a symbol. The graph and the guards (``as_functions``) repeat
exactly this operation.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy
import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from fxstack_capture.callers import calls_program
from fxstack_capture.guards.shape import (
    FloatAdd,
    FloatDiv,
    FloatFunction,
    FloatMul,
    FloatNeg,
    FloatPower,
    FloatSub,
)
from fxstack_capture.torch_compat import GuardSource
from fxstack_capture.torch_compat import Source as TorchSource

# Limits: if a program branches on a zero result, its sign is not guarded. Code with // and % is compiled
# again for each value.

Operand: TypeAlias = sympy.Basic | int | float
"""An operand of a computed float: an expression, or a constant."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of ``SymNode`` that returns a float, as a Python function and as a sympy function."""

    function: Callable[..., Any]
    """Computes the current value as Python does."""
    symbolic: type[FloatFunction]
    """The sympy function. Guards evaluate it with floats."""
    sign: str
    """The operator in the text of a formula, such as ``+``."""


OPERATIONS = {
    "add": Operation(operator.add, FloatAdd, "+"),
    "sub": Operation(operator.sub, FloatSub, "-"),
    "mul": Operation(operator.mul, FloatMul, "*"),
    "float_truediv": Operation(operator.truediv, FloatDiv, "/"),
    "int_truediv": Operation(operator.truediv, FloatDiv, "/"),
    "float_pow": Operation(operator.pow, FloatPower, "**"),
    "neg": Operation(operator.neg, FloatNeg, "-"),
}
"""Maps names of ``SymNode`` methods to the operations."""


@dataclass(frozen=True, slots=True)
class Computed:
    """The definition of a symbol: ``operation`` on ``operands``."""

    operation: Operation
    operands: tuple[Operand, ...]
    """The operands: expressions, and plain numbers for constants."""


class ComputedSource(TorchSource):
    """The source of a computed number, in the form that ShapeEnv expects.

    ``text`` is the formula of the number, such as ``(zf0 + 0.1)``.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def name(self) -> str:
        return self.text

    @property
    def guard_source(self) -> GuardSource:
        """The kind of source. ShapeEnv requires it; fxstack does not use it."""
        return GuardSource.LOCAL


class FloatArithmetic:
    """The computed floats of one ShapeEnv. Every float operation of ``MemoNode`` goes through ``apply``."""

    def __init__(self) -> None:
        self.computed: dict[sympy.Symbol, Computed] = {}
        """The definition of each symbol."""
        self._symbols: dict[tuple[object, ...], sympy.Symbol] = {}
        """Maps an operation and its operands to the symbol, so that equal formulas have one symbol."""

    def apply(self, name: str, nodes: tuple[SymNode, ...]) -> SymNode | None:
        """Return the node of the float that operation ``name`` computes from ``nodes``.

        Return None if the caller must use SymNode's own method. That method is exact, or records a proxy.
        """
        if get_proxy_mode() is not None:
            return None
        if name != "int_truediv" and all(node.pytype is not float for node in nodes):
            return None
        operation = OPERATIONS[name]
        if any(node.hint is None for node in nodes):  # An operand depends on tensor data.
            return type(nodes[0])(self._symbol(operation, nodes, None), nodes[0].shape_env, float, None)
        # sympy's numbers are unbounded, so sympy would not overflow as Python floats do.
        if all(node.expr.is_number for node in nodes):
            result = _compute(operation, [node.hint for node in nodes])
            return None if result is None else nodes[0].wrap_float(result)
        if operation.function is operator.truediv:
            demand_divisor(operator.truediv, *nodes)
        if operation.function is operator.pow and not _has_real_power(*nodes):
            return None
        hint = _compute(operation, [node.hint for node in nodes])
        if hint is None:
            return None
        if not math.isfinite(hint):
            return _constant(nodes, hint)
        symbol = self._symbol(operation, nodes, hint)
        return type(nodes[0])(symbol, nodes[0].shape_env, float, hint)

    def _symbol(self, operation: Operation, nodes: tuple[SymNode, ...], hint: float | None) -> Any:
        """Return the symbol of a result. Equal formulas have one symbol.

        ``hint`` is the current value, or None if the value depends on tensor data.
        """
        operands = tuple(n.hint if n.expr.is_number and n.hint is not None else n.expr for n in nodes)
        # A number is described by its text: 1 equals 1.0, and 0.0 equals -0.0.
        key = (operation.sign, *(n if isinstance(n, sympy.Basic) else repr(n) for n in operands))
        symbol = self._symbols.get(key)
        if symbol is None:
            text = f"({f' {operation.sign} '.join(map(repr, operands))})"
            text = f"({operation.sign}{operands[0]!r})" if len(operands) == 1 else text
            symbol = self._symbols[key] = _new_symbol(nodes[0].shape_env, text, hint)
            self.computed[symbol] = Computed(operation, operands)
        return symbol


def _new_symbol(env: ShapeEnv, text: str, hint: float | None) -> Any:
    """Make the symbol of a computed float with the formula ``text``. It is unbacked if ``hint`` is None."""
    if hint is None:
        with env.ignore_fresh_unbacked_symbols():  # a node of the graph computes the symbol
            return env.create_unbacked_symfloat().node.expr
    return env.create_symbol(
        hint,
        source=ComputedSource(text),
        dynamic_dim=DimDynamic.DYNAMIC,
        positive=None,
        do_not_specialize_zero_one=True,
    )


@calls_program
def demand_divisor(function: Callable[..., Any], left: SymNode, divisor: SymNode) -> None:
    """Guard that a divisor is not zero, because the division would raise in the graph.

    Called before each symbolic division. If the divisor is zero now, call ``function``, which raises the
    program's error. Raises GuardOnDataDependentSymNode if the divisor differs from run to run.
    """
    divisor.shape_env.demand_decided(divisor.expr)
    if divisor.hint is None or divisor.expr.is_number:
        return
    if not divisor.ne(divisor.wrap_int(0)).guard_bool("", 0):
        function(left.hint, divisor.hint)


def exponent_of_power() -> float | None:
    """Return the exponent if the caller is ``SymFloat.__pow__``, testing that its base is not negative.
    Otherwise None.

    ``MemoNode.expect_true`` calls this. torch asserts that no base is negative, because the result may be
    complex. With a whole exponent, the result is never complex.
    """
    frame = sys._getframe(1)
    for _ in range(_MAX_CALLS):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        if frame.f_code is _POWER:
            exponent = frame.f_locals["other"]
            return float(exponent) if type(exponent) in (int, float) else 0.5
    return None


_POWER = torch.SymFloat.__pow__.__code__
"""The code of ``SymFloat.__pow__``, which ``exponent_of_power`` looks for on the stack."""
_MAX_CALLS = 6
"""The largest number of calls between ``SymFloat.__pow__`` and ``SymNode.expect_true``."""


def _has_real_power(base: SymNode, exponent: SymNode) -> bool:
    """If the base is positive now, guard that it is positive, and return True.

    Return False for any other base, because its powers may raise or be complex.
    """
    for node in (base, exponent):
        node.shape_env.demand_decided(node.expr)
    return bool(base.gt(base.wrap_int(0)).guard_bool("", 0))


def _compute(operation: Operation, values: list[float]) -> float | None:
    """Return the result for the current values.

    Return None if Python raises an error or if the result is not a float.
    """
    try:
        result = operation.function(*values)
    except ArithmeticError:
        return None  # torch raises the program's error
    return result if isinstance(result, float) else None


def _constant(nodes: tuple[SymNode, ...], hint: float) -> SymNode:
    """Return a constant node for ``hint``, a result that no symbol can represent, such as infinity.

    The values of the operands are guarded.
    """
    for node in nodes:
        if not node.expr.is_number:
            node.guard_int("", 0) if node.pytype is int else node.guard_float("", 0)
    return nodes[0].wrap_float(hint)


def as_functions(expr: sympy.Basic, computed: Mapping[sympy.Symbol, Computed]) -> sympy.Basic:
    """Return ``expr`` with each computed symbol replaced by its operation.

    The result has only symbols with sources. Guards evaluate it, because they can read only sources.
    """
    definitions = {symbol: computed[symbol] for symbol in expr.free_symbols if symbol in computed}
    if not definitions:
        return expr
    replacements = {
        symbol: c.operation.symbolic(*(_operand(o, computed) for o in c.operands))
        for symbol, c in definitions.items()
    }
    with sympy.evaluate(False):
        return expr.xreplace(replacements)


def _operand(operand: Operand, computed: Mapping[sympy.Symbol, Computed]) -> sympy.Basic:
    """Return an operand as an expression with symbols that have sources."""
    if isinstance(operand, sympy.Basic):
        return as_functions(operand, computed)
    return sympy.Integer(operand) if isinstance(operand, int) else sympy.Float(operand)
