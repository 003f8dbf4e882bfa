"""Compile a boolean sympy expression over sizes into the postfix program of native/guard_tree/shape_program.c."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy
from sympy.logic import boolalg

from fxstack_capture.torch_compat import sympy_functions as torch_functions

Instruction = tuple[str, Any]
"""A pair: the name of an operation, and its operand. The operand is a register, a constant, or 0 if there is
none.
"""
Registers = "Mapping[sympy.Symbol, int]"
"""Maps each symbol to its register. A guard loads the value at the source of the symbol into the register."""


class FloatFunction(sympy.Function):
    """A float operation that sympy does not simplify. ``shapes.symbolic.floats`` makes expressions of these
    classes.
    """

    is_real = True

    @classmethod
    def eval(cls, *_args: object) -> None:
        """Return None, so that sympy does not simplify the expression."""


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


_UNARY = {
    "neg": (FloatNeg,),
    "not": (boolalg.Not,),
    "abs": (sympy.Abs,),
    "floor": (sympy.floor, torch_functions.FloorToInt),
    "ceil": (sympy.ceiling, torch_functions.CeilToInt),
    "trunc": (torch_functions.TruncToInt,),
    "round": (torch_functions.RoundToInt,),
    "tofloat": (torch_functions.ToFloat,),
    "sqrt": (torch_functions.OpaqueUnaryFn_sqrt,),
    "log2": (torch_functions.OpaqueUnaryFn_log2,),
}
"""Maps each operation of one argument to the sympy functions that it computes."""
_BINARY = {
    "floordiv": (torch_functions.FloorDiv,),
    "mod": (sympy.Mod, torch_functions.Mod, torch_functions.PythonMod),
    "ceildiv": (torch_functions.CeilDiv,),
    "cleandiv": (torch_functions.CleanDiv,),
    "truediv": (torch_functions.IntTrueDiv, torch_functions.FloatTrueDiv, FloatDiv),
    "pow": (torch_functions.PowByNatural, torch_functions.FloatPow, FloatPower),
    "add": (FloatAdd,),
    "mul": (FloatMul,),
    "lshift": (torch_functions.LShift,),
    "rshift": (torch_functions.RShift,),
    "eq": (sympy.Eq,),
    "ne": (sympy.Ne,),
    "lt": (sympy.StrictLessThan,),
    "le": (sympy.LessThan,),
}
"""Maps each operation of two arguments to the sympy functions that it computes."""
_FOLDED = {
    "add": (sympy.Add,),
    "max": (sympy.Max, torch_functions.Max),
    "min": (sympy.Min, torch_functions.Min),
    "and": (boolalg.And,),
    "or": (boolalg.Or,),
    "bitand": (torch_functions.BitwiseFn_bitwise_and,),
    "bitor": (torch_functions.BitwiseFn_bitwise_or,),
}
"""Operations of two arguments that compute sympy functions of any number of arguments."""


def _in_order(operation: str) -> Callable[[Any, Any], Iterator[Instruction]]:
    """Return a rule that emits all arguments and then ``operation`` once."""

    def emit(expr: sympy.Expr, registers: object) -> Iterator[Instruction]:
        for argument in expr.args:
            yield from _emit(argument, registers)
        yield operation, 0

    return emit


def _folded(operation: str) -> Callable[[Any, Any], Iterator[Instruction]]:
    """Return a rule for a sympy function of many arguments.

    ``operation`` combines the result of the first arguments with the next argument.
    """

    def emit(expr: sympy.Expr, registers: object) -> Iterator[Instruction]:
        for position, argument in enumerate(expr.args):
            yield from _emit(argument, registers)
            if position:
                yield operation, 0

    return emit


def _swapped(operation: str) -> Callable[[Any, Any], Iterator[Instruction]]:
    """Return a rule that emits ``operation`` on the two arguments in reverse order: ``a > b`` is ``b < a``."""

    def emit(expr: sympy.Expr, registers: dict[str, int]) -> Iterator[Instruction]:
        yield from _emit(expr.args[1], registers)
        yield from _emit(expr.args[0], registers)
        yield operation, 0

    return emit


def _mul(expr: sympy.Expr, registers: dict[str, int]) -> Iterator[Instruction]:
    """Emit a product. A rational factor p/q multiplies by p and divides the whole product by q at the end."""
    coefficient, factors = expr.as_coeff_mul()
    if isinstance(coefficient, sympy.Rational) and coefficient.q != 1:
        # A factor such as 1/3 has no exact float. Therefore the product is divided by the integer 3.
        yield from _product((sympy.Integer(coefficient.p), *factors), registers)
        yield "int", int(coefficient.q)
        yield "truediv", 0
        return
    yield from _product(expr.args, registers)


def _product(factors: tuple[Any, ...], registers: object) -> Iterator[Instruction]:
    """Emit the product of ``factors``."""
    for position, factor in enumerate(factors):
        yield from _emit(factor, registers)
        if position:
            yield "mul", 0


def _pow(expr: sympy.Expr, registers: object) -> Iterator[Instruction]:
    """Emit a power. The exponent 1/2 is a square root."""
    base, exponent = expr.args
    yield from _emit(base, registers)
    if exponent == sympy.Rational(1, 2):
        yield "sqrt", 0
        return
    yield from _emit(exponent, registers)
    yield "pow", 0


def _float_sub(expr: sympy.Expr, registers: dict[str, int]) -> Iterator[Instruction]:
    """Emit ``a - b`` as ``a + -b``. Both give the same float."""
    yield from _emit(expr.args[0], registers)
    yield from _emit(expr.args[1], registers)
    yield "neg", 0
    yield "add", 0


def _modular_indexing(expr: sympy.Expr, registers: object) -> Iterator[Instruction]:
    """Emit ``(base // divisor) % modulus``."""
    base, divisor, modulus = expr.args
    yield from _emit(base, registers)
    yield from _emit(divisor, registers)
    yield "floordiv", 0
    yield from _emit(modulus, registers)
    yield "mod", 0


def _trunc_to_float(expr: sympy.Expr, registers: dict[str, int]) -> Iterator[Instruction]:
    """Emit the truncation of a float: the float without its fraction."""
    yield from _emit(expr.args[0], registers)
    yield "trunc", 0
    yield "tofloat", 0


def _xor(expr: sympy.Expr, registers: dict[str, int]) -> Iterator[Instruction]:
    """Emit ``a ^ b`` as ``(a | b) - (a & b)``: the bits in either number, less the bits in both."""
    for operation in ("bitor", "bitand"):
        yield from _emit(expr.args[0], registers)
        # The native operations include neither ``xor`` nor a subtraction.
        yield from _emit(expr.args[1], registers)
        yield operation, 0
    yield "neg", 0
    yield "add", 0


def _is_dense(expr: sympy.Expr, registers: dict[str, int]) -> Iterator[Instruction]:
    """Emit whether a tensor covers its memory without gaps and overlaps. Arguments: its sizes, then its strides.

    The stride of each dimension that is not one is the product of the sizes with smaller strides, and differs from
    all other strides.
    """
    count = len(expr.args) // 2
    sizes, strides = expr.args[:count], expr.args[count:]
    facts = []
    for index, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        others = [(sizes[i], strides[i]) for i in range(count) if i != index]
        smaller = [torch_functions.Where(sympy.Lt(step, stride), length, 1) for length, step in others]
        unequal = [sympy.Eq(length, 1) | sympy.Ne(step, stride) for length, step in others]
        few = sympy.Lt(size, 2) if count == 1 else sympy.Eq(size, 1)
        facts.append(few | sympy.And(sympy.Eq(stride, sympy.Mul(*smaller)), *unequal))
    return _emit(sympy.And(*facts), registers)


def _rational(expr: sympy.Expr, _registers: Any) -> Iterator[Instruction]:
    """Emit an integer, or a fraction as a division."""
    yield "int", int(expr.p)
    if expr.q != 1:
        yield "int", int(expr.q)
        yield "truediv", 0


_RULES: dict[type, Callable[[Any, Any], Iterator[Instruction]]] = {
    **{
        cls: _in_order(op)
        for op, classes in itertools.chain(_UNARY.items(), _BINARY.items())
        for cls in classes
    },
    **{cls: _folded(op) for op, classes in _FOLDED.items() for cls in classes},
    sympy.StrictGreaterThan: _swapped("lt"),
    sympy.GreaterThan: _swapped("le"),
    sympy.Mul: _mul,
    sympy.Pow: _pow,
    FloatSub: _float_sub,
    torch_functions.ModularIndexing: _modular_indexing,
    torch_functions.TruncToFloat: _trunc_to_float,
    torch_functions.Identity: lambda expr, registers: _emit(expr.args[0], registers),
    torch_functions.IsNonOverlappingAndDenseIndicator: _is_dense,
    torch_functions.Where: _in_order("where"),
    boolalg.ITE: _in_order("where"),
    torch_functions.BitwiseFn_bitwise_xor: _xor,
    boolalg.BooleanTrue: lambda _expr, _registers: iter([("int", 1)]),
    boolalg.BooleanFalse: lambda _expr, _registers: iter([("int", 0)]),
}
"""Maps each sympy class to its rule. A rule takes the expression and the registers, and yields instructions."""


def _emit(expr: sympy.Expr, registers: Any) -> Iterator[Instruction]:
    """Emit any expression. Raise ValueError for a sympy class without a rule."""
    if isinstance(expr, sympy.Symbol):
        yield "load", registers[expr]
    elif isinstance(expr, sympy.Rational):
        yield from _rational(expr, registers)
    elif isinstance(expr, sympy.Float):
        yield "float", float(expr)
    else:
        rule = _RULES.get(type(expr))
        if rule is None:
            raise ValueError(f"no native form of {type(expr).__name__} in the shape expression {expr}")
        yield from rule(expr, registers)


def shape_program(expr: sympy.Basic, registers: Mapping[sympy.Symbol, int]) -> tuple[Instruction, ...]:
    """Return the postfix program of ``expr``. The program loads each symbol from its register.

    ``ShapeHolds`` calls this function when a guard tree is built.

    Raises:
        ValueError: the expression has a function without a native form. The message names the function.
        KeyError: a symbol has no register.
    """
    return tuple(_emit(expr, registers))
