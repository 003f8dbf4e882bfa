"""Arithmetic on symbolic floats, operation by operation.

sympy computes with real numbers: it would turn ``(a + 0.1) - a`` into 0.1 and ``a * 0.1 * 10`` into ``a``, and a
float is neither. So the result of every operation on floats is a symbol of its own, and ``Computed`` remembers which
operation on what it stands for: the graph repeats that very operation, and so do guards (``as_functions``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic

from fxstack_capture.callers import calls_program
from fxstack_capture.torch_compat import GuardSource
from fxstack_capture.torch_compat import Source as TorchSource

# Limits: the sign of a zero result is not guarded where a program branches on it. // and % compile anew for
# each value.

Operand: TypeAlias = sympy.Basic | int | float


class FloatFunction(sympy.Function):
    """An operation on floats that sympy leaves alone."""

    is_real = True

    @classmethod
    def eval(cls, *_args: object) -> None:
        """Never simplified."""


class FloatAdd(FloatFunction):
    """``a + b``."""


class FloatSub(FloatFunction):
    """``a - b``."""


class FloatMul(FloatFunction):
    """``a * b``."""


class FloatDiv(FloatFunction):
    """``a / b``."""


class FloatPower(FloatFunction):
    """``a ** b``."""


class FloatNeg(FloatFunction):
    """``-a``."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of ``SymNode`` that gives a float, as a Python function and as a sympy one."""

    function: Callable[..., Any]
    symbolic: type[FloatFunction]
    sign: str


OPERATIONS = {
    "add": Operation(operator.add, FloatAdd, "+"),
    "sub": Operation(operator.sub, FloatSub, "-"),
    "mul": Operation(operator.mul, FloatMul, "*"),
    "float_truediv": Operation(operator.truediv, FloatDiv, "/"),
    "int_truediv": Operation(operator.truediv, FloatDiv, "/"),
    "float_pow": Operation(operator.pow, FloatPower, "**"),
    "neg": Operation(operator.neg, FloatNeg, "-"),
}


@dataclass(frozen=True, slots=True)
class Computed:
    """What a symbol stands for: ``operation`` on symbolic expressions and plain numbers."""

    operation: Operation
    operands: tuple[Operand, ...]


class ComputedSource(TorchSource):
    """Where ShapeEnv believes a computed number to come from: its formula."""

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def name(self) -> str:
        return self.text

    @property
    def guard_source(self) -> GuardSource:
        return GuardSource.LOCAL


class FloatArithmetic:
    """The computed floats of one ShapeEnv."""

    def __init__(self) -> None:
        self.computed: dict[sympy.Symbol, Computed] = {}
        self._known: dict[str, tuple[sympy.Symbol, float]] = {}

    def apply(self, name: str, nodes: tuple[SymNode, ...]) -> SymNode | None:
        """The node of the result; None where the ordinary way is exact (or must record a proxy first)."""
        if get_proxy_mode() is not None:
            return None
        if any(node.hint is None for node in nodes):  # depends on data: left to torch
            return None
        if name != "int_truediv" and all(node.pytype is not float for node in nodes):
            return None
        operation = OPERATIONS[name]
        if all(node.expr.is_number for node in nodes):  # sympy's numbers have no largest one
            known = _compute(operation, [node.hint for node in nodes])
            return None if known is None else nodes[0].wrap_float(known)
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

    def _symbol(self, operation: Operation, nodes: tuple[SymNode, ...], hint: float) -> Any:
        operands = tuple(n.hint if n.expr.is_number else n.expr for n in nodes)
        text = f"({f' {operation.sign} '.join(map(repr, operands))})"
        text = f"({operation.sign}{operands[0]!r})" if len(operands) == 1 else text
        known = self._known.get(text)
        if known is not None:
            return known[0]
        symbol = nodes[0].shape_env.create_symbol(
            hint,
            source=ComputedSource(text),
            dynamic_dim=DimDynamic.DYNAMIC,
            positive=None,
            do_not_specialize_zero_one=True,
        )
        self._known[text] = symbol, hint
        self.computed[symbol] = Computed(operation, operands)
        return symbol


@calls_program
def demand_divisor(function: Callable[..., Any], left: SymNode, divisor: SymNode) -> None:
    """Guard that a division is not by zero, which would raise in the graph, or raise as the program does.

    Raises GuardOnDataDependentSymNode where the divisor differs from run to run.
    """
    divisor.shape_env.demand_decided(divisor.expr)
    if divisor.hint is None or divisor.expr.is_number:
        return
    if not divisor.ne(divisor.wrap_int(0)).guard_bool("", 0):
        function(left.hint, divisor.hint)


def _has_real_power(base: SymNode, exponent: SymNode) -> bool:
    """Guard that a base is positive: powers of others may raise, or be complex."""
    for node in (base, exponent):
        node.shape_env.demand_decided(node.expr)
    return bool(base.gt(base.wrap_int(0)).guard_bool("", 0))


def _compute(operation: Operation, values: list[float]) -> float | None:
    try:
        result = operation.function(*values)
    except ArithmeticError:
        return None  # torch raises the program's error
    return result if isinstance(result, float) else None


def _constant(nodes: tuple[SymNode, ...], hint: float) -> SymNode:
    """A result that no symbol can be: the operands are guarded to be what they are."""
    for node in nodes:
        if not node.expr.is_number:
            node.guard_int("", 0) if node.pytype is int else node.guard_float("", 0)
    return nodes[0].wrap_float(hint)


def as_functions(expr: sympy.Basic, computed: Mapping[sympy.Symbol, Computed]) -> sympy.Basic:
    """``expr`` with every computed symbol spelled out over those that are read from sources."""
    mine = {symbol: computed[symbol] for symbol in expr.free_symbols if symbol in computed}
    if not mine:
        return expr
    spelled = {
        symbol: c.operation.symbolic(*(_operand(o, computed) for o in c.operands))
        for symbol, c in mine.items()
    }
    with sympy.evaluate(False):
        return expr.xreplace(spelled)


def _operand(operand: Operand, computed: Mapping[sympy.Symbol, Computed]) -> sympy.Basic:
    if isinstance(operand, sympy.Basic):
        return as_functions(operand, computed)
    return sympy.Integer(operand) if isinstance(operand, int) else sympy.Float(operand)
