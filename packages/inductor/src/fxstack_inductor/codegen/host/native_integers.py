"""Integers that a native host program reads from tensors, or computes from sizes, in C.

A loop with an integer as counter reads it, compares it and writes it in each iteration. Where an integer is so large
that C arithmetic might exceed 64 bits, Python computes the result.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import torch

from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.names import symbols_of
from fxstack_inductor.codegen.host.native_numbers import sum_limit
from fxstack_inductor.codegen.host.native_text import returning
from fxstack_inductor.codegen.host.python_host import PythonPrinter
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Argument
from fxstack_inductor.lower.host.numbers import word
from fxstack_inductor.lower.host.symbols import definition_of

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
