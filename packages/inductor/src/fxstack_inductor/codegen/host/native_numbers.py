"""Numbers that a native host program computes in C: floats of Python, operation by operation, and integers.

The C variable of a number says whether its value is known in C. Where it is not (another type, an integer beyond
2**53, a zero divisor, an overflow), the step calls back Python, which computes the number or raises.

Integers that a native host program reads from tensors, or computes from sizes, in C.

A loop with an integer as counter reads it, compares it and writes it in each iteration. Where an integer is so large
that C arithmetic might exceed 64 bits, Python computes the result.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import torch

from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.names import symbols_of
from fxstack_inductor.codegen.host.native_text import CText, callback, returning
from fxstack_inductor.codegen.host.python_host import PythonPrinter
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import Expr, Var
from fxstack_inductor.ir.nodes import Argument, ExternCall
from fxstack_inductor.lower.host.numbers import word
from fxstack_inductor.lower.host.symbols import definition_of

OPERATIONS: Mapping[object, str] = MappingProxyType(
    {
        **{getattr(operator, name): name for name in ("add", "sub", "mul", "truediv", "neg", "pow", "abs")},
        **{getattr(math, name): name for name in ("sqrt", "log", "exp", "sin", "cos", "tanh")},
        math.pow: "pow",
        math.fabs: "abs",
        builtins.abs: "abs",
        torch.sym_float: "sym_float",
        torch.sym_max: "max",
        torch.sym_min: "min",
    }
)
"""The function ``fx_NAME`` of ``host.h``, by the target of a call."""
MAKES_FLOAT = frozenset({"truediv", "sym_float", "sqrt", "log", "exp", "sin", "cos", "tanh"})
"""Operations whose result is a float also for integers."""
EXACT = 2**53
"""All integers up to this one are exact floats."""


@dataclass
class Numbers:
    """The numbers of one program, whose lines go to ``text``."""

    text: CText
    variables: dict[str, str] = field(default_factory=dict)
    """C variables of type ``fx_number``, by the program's variable or the text of an integer expression."""
    places: dict[str, str] = field(default_factory=dict)
    """The place of a computed number's Python object, by its name in ``variables``."""

    def compute(self, call: records.Call, lines: Sequence[str], objects: Mapping[str, str]) -> bool:
        """Write ``call`` in C and return True; return False if C lacks the operation.

        ``lines`` are the same step in Python; ``objects`` has the places of values that are Python objects.
        """
        name = OPERATIONS.get(call.target) if _is_hashable(call.target) else None
        if name is None or call.kwargs or call.bindings or len(call.results) != 1:
            return False
        result = call.results[0]
        floats = name in MAKES_FLOAT or call.target is math.pow or call.target is math.fabs
        floats = floats or any(isinstance(arg, (records.Variable, float)) for arg in call.args)
        if result.kind != "object" or result.path or not floats:
            return False
        operands = [self._operand(arg, objects) for arg in call.args]
        constants = [operand for operand in operands if operand is not None]
        reads = [self._variable(read, objects) for read in call.reads]
        if len(constants) < len(operands) or None in reads:
            return False
        function = callback(call.reads, [*lines, f"    return ({result.name},)"])
        self._define(
            result.name, f"fx_{name}({', '.join(constants)})", function, [str(read) for read in reads]
        )
        return True

    def integer(self, value: Expr) -> str:
        """Define a C number for ``value``, an expression of symbols, and return its name in ``variables``."""
        name, symbols = str(value), symbols_of((value,))
        if name not in self.variables:
            text = _integer(value) or "fx_integer(0, 0)"
            self._define(name, text, returning(symbols, name), list(map(_whole, symbols)))
        return name

    def boxed(self, name: str) -> str:
        """Return the place of a number's Python object; C code that makes a missing object is written before.

        At that line the program must hold the interpreter's lock.
        """
        variable, place = self.variables[name], self.places[name]
        self.text.check(f"!fx_held(&{variable}, &{place})")
        return place

    def tensor(self, call: records.Call, lines: Sequence[str], objects: Mapping[str, str]) -> str | None:
        """Return the C address of a number that kernels read as a float64 tensor without dimensions.

        Return None if ``call`` makes no such tensor.
        """
        wide = isinstance(call.step, ExternCall) and call.kwargs == {"dtype": torch.float64}
        if call.target is not torch.ops.aten.scalar_tensor.default or not wide or len(call.results) != 1:
            return None
        (value,), result = call.args, call.results[0].name
        source = self._variable(value.name, objects) if isinstance(value, records.Variable) else None
        if source is None:
            return None
        returned = f"    return (float({result}),)"
        self._define(result, f"fx_sym_float({source})", callback(call.reads, [*lines, returned]), [source])
        return f"&{self.variables[result]}.value"

    def _define(self, name: str, made: str, function: str, reads: Sequence[str]) -> None:
        """Define the number ``name`` by the C expression ``made``.

        If the number is not known in C, the program calls the Python ``function`` with the numbers
        ``reads``.
        """
        text = self.text
        variable, place = text.variable("n", name), text.new("o")
        operands = f"(fx_number[]){{{', '.join(reads)}}}, {len(reads)}"
        called = f"{text.bound(text.callback(function))}, {operands}, &{place}, &{variable}"
        text.line(f"fx_number {variable} = {made};")
        text.check(f"!{variable}.known && fx_number_by_python(&thread, {called})")
        self.variables[name], self.places[name] = variable, place

    def _variable(self, name: str, objects: Mapping[str, str]) -> str | None:
        """Return the C number of the program's variable ``name``; None if it is neither a number nor an object."""
        if name not in self.variables and name in objects:
            variable = self.variables[name] = self.text.variable("n", name)
            self.places[name] = objects[name]
            self.text.line(f"fx_number {variable} = fx_read({objects[name]});")
        return self.variables.get(name)

    def _operand(self, value: object, objects: Mapping[str, str]) -> str | None:
        """Return the C expression of an operand; None if C cannot hold it exactly."""
        match value:
            case records.Variable(name):
                return self._variable(name, objects)
            case Expr():
                return _integer(value)
            case bool() | int():
                return f"fx_integer({int(value)}, 1)" if abs(value) <= EXACT else None
            case float() if math.isfinite(value):
                return f"fx_float({value.hex()}, 1)"
            case _:
                return None


def _integer(value: Expr) -> str | None:
    """Return the C number of an integer expression, known where C computes it exactly; None if that is unclear."""
    limit = sum_limit(value)
    if limit is None:
        return None
    within = " && ".join(f"{s} <= {limit} && {s} >= -{limit}" for s in symbols_of((value,)))
    return f"fx_integer({c_index(value)}, {within or 1})"


def sum_limit(value: Expr) -> int | None:
    """Return a bound: if no symbol exceeds it, ``value`` is at most ``EXACT``. None if ``value`` is no polynomial."""
    if not all(isinstance(atom, Var) for monomial, _ in value.terms for atom in monomial):
        return None
    limits = (1 << bits for bits in range(52, 0, -1))
    sizes = [(len(monomial), abs(coefficient)) for monomial, coefficient in value.terms]
    return next((s for s in limits if sum(c * s**degree for degree, c in sizes) <= EXACT), None)


def _whole(symbol: str) -> str:
    """Return a symbol as a C number that is known."""
    return f"fx_integer({symbol}, 1)"


def _is_hashable(target: object) -> bool:
    """Whether ``OPERATIONS`` can be asked for a call's target."""
    return callable(target) and type(target).__hash__ is not None


# --- integers of tensors and sizes ------------------------------------------------------------------

ITEM = torch.ops.aten._local_scalar_dense.default
INTEGERS: Mapping[torch.dtype, str] = MappingProxyType(
    {
        torch.int64: "int64_t",
        torch.int32: "int32_t",
        torch.int16: "int16_t",
        torch.int8: "int8_t",
        torch.uint8: "uint8_t",
    }
)
"""The C types of integers whose values are Python's ``int``."""
COMPARISONS: Mapping[type[ast.cmpop], str] = MappingProxyType(
    {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
)
SUMS: Mapping[type[ast.operator], str] = MappingProxyType({ast.Add: "+", ast.Sub: "-"})
LIMIT = 1 << 52
"""Sums of integers up to this one, of which a definition has few, do not exceed 64 bits."""


class Printer(Protocol):
    """The printer of the program (``native.NativePrinter``)."""

    locked: bool
    addresses: dict[str, str]
    python: PythonPrinter

    def line(self, text: str) -> None: ...

    def check(self, failed: str) -> None: ...

    def lock(self, wanted: bool) -> None: ...

    def new(self, kind: str) -> str: ...

    def variable(self, kind: str, name: str) -> str: ...

    def tensor(self, value: records.Variable | records.Strided) -> str: ...

    def call_python(self, text: str, values: list[str], place: str = "", wanted: int = 0) -> None: ...


def write_integer(printer: Printer, record: records.Call) -> bool:
    """Write a call that reads, computes or checks an integer, and return True; return False for another call."""
    if record.target is word and not record.bindings:
        return _write_check(printer, record)
    if len(record.bindings) != 1 or len(record.results) != 1:
        return False
    (binding,) = record.bindings
    if binding.dim is not None or binding.rest or binding.source != record.results[0].name:
        return False
    if record.target is ITEM:
        return _write_item(printer, record, binding.symbol)
    return _write_definition(printer, record, binding.symbol)


def _write_item(printer: Printer, record: records.Call, symbol: str) -> bool:
    """Write the read of the only element of a tensor on the CPU."""
    (node,), (value,) = record.step.reads, record.args
    kind = INTEGERS.get(node.dtype)
    one = all(size == 1 for size in node.shape)
    if kind is None or not one or node.device.type != "cpu" or isinstance(node, Argument):
        return False
    address = printer.addresses.get(value.name) if isinstance(value, records.Variable) else None
    if address is None:
        address = printer.variable("D", symbol)
        handle = printer.tensor(value)
        printer.line(f"void* {address} = 0;")
        printer.check(f"fx_data({handle}, &{address})")
    printer.line(f"const int64_t {symbol} = *(const {kind}*){address};")
    return True


def _write_definition(printer: Printer, record: records.Call, symbol: str) -> bool:
    """Write the computation of a size expression with cases, such as a comparison as a number."""
    definition = definition_of(record.target)
    text = None if definition is None else c_text(ast.parse(definition, mode="eval").body)
    if text is None or not all(isinstance(arg, Expr) and arg.as_var() for arg in record.args):
        return False
    symbols = symbols_of(record.args)
    printer.line(f"int64_t {symbol} = 0;")
    printer.line(f"if ({_within(symbols, LIMIT)}) {symbol} = {text};")
    printer.line("else {")
    _write_by_python(printer, symbols, f"int(({definition})({', '.join(symbols)}))", symbol)
    printer.line("}")
    return True


def _write_check(printer: Printer, record: records.Call) -> bool:
    """Write the check that an integer fits into 64 bits; Python makes it where its operands are large."""
    (value,) = record.args
    limit = sum_limit(value) if isinstance(value, Expr) else None
    if limit is None:
        return False
    symbols = symbols_of((value,))
    printer.line(f"if (!({_within(symbols, limit)})) {{")
    _write_by_python(printer, symbols, f"{printer.python.constant(word)}({value})", "")
    printer.line("}")
    return True


def _within(symbols: Sequence[str], limit: int) -> str:
    """Return the C condition that no symbol exceeds ``limit``."""
    return " && ".join(f"{s} <= {limit} && {s} >= -{limit}" for s in symbols) or "1"


def _write_by_python(printer: Printer, symbols: Sequence[str], value: str, target: str) -> None:
    """Write the call of Python that computes ``value`` into the C integer ``target`` (empty: nowhere)."""
    locked = printer.locked
    printer.lock(True)
    places = [printer.new("o") for _ in symbols]
    for place, name in zip(places, symbols, strict=True):
        printer.line(f"fx_set(&{place}, fx.PyLong_FromLongLong({name}));")
        printer.check(f"!{place}")
    result = printer.new("o")
    printer.call_python(returning(symbols, value), places, result, 1)
    if target:
        printer.line(f"{target} = fx.PyLong_AsLongLong({result});")
        printer.check(f"{target} == -1 && fx.PyErr_Occurred()")
    printer.lock(locked)


def c_text(node: ast.expr) -> str | None:
    """Return a Python expression of integers in C; None if C may compute another number."""
    match node:
        case ast.Lambda(_, body):
            return c_text(body)
        case ast.Constant(bool() | int() as value) if abs(value) < 1 << 31:
            return str(int(value))
        case ast.Name(name):
            return name
        case ast.UnaryOp(ast.Not(), operand):
            return _joined("!({})", operand)
        case ast.UnaryOp(ast.USub(), operand):
            return _joined("(-({}))", operand)
        case ast.BinOp(left, operation, right) if type(operation) in SUMS:
            return _joined(f"({{}} {SUMS[type(operation)]} {{}})", left, right)
        case ast.Compare(left, [comparison], [right]) if type(comparison) in COMPARISONS:
            return _joined(f"({{}} {COMPARISONS[type(comparison)]} {{}})", left, right)
        case ast.BoolOp(ast.And(), values) if all(map(_is_condition, values)):
            return _joined("(" + " && ".join("{}" for _ in values) + ")", *values)
        case ast.BoolOp(ast.Or(), values) if all(map(_is_condition, values)):
            return _joined("(" + " || ".join("{}" for _ in values) + ")", *values)
        case ast.IfExp(test, true, false) | ast.Call(ast.Name("Where"), [test, true, false], []):
            return _joined("({} ? {} : {})", test, true, false)
        case _:
            return None


def _joined(pattern: str, *parts: ast.expr) -> str | None:
    """Return ``pattern`` with the C texts of ``parts``; None if one has none."""
    texts = [text for text in map(c_text, parts) if text is not None]
    return pattern.format(*texts) if len(texts) == len(parts) else None


def _is_condition(node: ast.expr) -> bool:
    """Whether the value of ``node`` is a truth value: ``and`` and ``or`` return their operands."""
    return isinstance(node, (ast.Compare, ast.BoolOp)) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )
