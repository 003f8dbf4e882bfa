"""Symbolic sizes as text. The parser never evaluates text.

The notation is functional: ``Add(1, Mul(2, s0))``. A name followed by parentheses is a function of
``FUNCTIONS``. Any other name is a symbol. A number is an integer, a float (with a point or exponent) or a
fraction ``p/q``. The arguments of commutative functions are sorted by their text, so that equal expressions
have equal text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from fxstack_interchange.format.errors import LoadError, SaveError
from fxstack_interchange.torch_compat import int_oo
from fxstack_interchange.torch_compat import sympy_functions as functions


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_SYMPY = ("Add", "Mul", "Pow", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Abs")
_TORCH = _words(
    "BitwiseFn_bitwise_and BitwiseFn_bitwise_or BitwiseFn_bitwise_xor CeilToInt CleanDiv FloatPow "
    "FloatTrueDiv FloorDiv FloorToInt Identity IntTrueDiv IsNonOverlappingAndDenseIndicator LShift Max Min "
    "Mod ModularIndexing OpaqueUnaryFn_acos OpaqueUnaryFn_asin OpaqueUnaryFn_asinh OpaqueUnaryFn_atan "
    "OpaqueUnaryFn_cos OpaqueUnaryFn_cosh OpaqueUnaryFn_exp OpaqueUnaryFn_log OpaqueUnaryFn_log2 "
    "OpaqueUnaryFn_sin OpaqueUnaryFn_sinh OpaqueUnaryFn_sqrt OpaqueUnaryFn_tan OpaqueUnaryFn_tanh "
    "PowByNatural PythonMod RShift RoundDecimal RoundToInt ToFloat TruncToFloat TruncToInt Where"
)

_RELATIONS = {
    "Eq": "Equality",
    "Ne": "Unequality",
    "Lt": "StrictLessThan",
    "Le": "LessThan",
    "Gt": "StrictGreaterThan",
    "Ge": "GreaterThan",
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(sympy, name) for name in _SYMPY},
    **{name: getattr(functions, name) for name in _TORCH if hasattr(functions, name)},
}
"""The functions that an expression may use, by name."""

_NAMES = {_RELATIONS.get(name, name): name for name in FUNCTIONS}
_CONSTANTS: dict[str, Any] = {"True": sympy.true, "False": sympy.false, "inf": sympy.oo, "int_oo": int_oo}
_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "And", "Or"})
_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+\.\d*(?:[eE][+-]?\d+)?|-?\d+[eE][+-]?\d+|-?\d+(?:/\d+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<mark>[(),]))"
)
MAX_LENGTH = 100_000
MAX_DEPTH = 200


def to_text(expr: sympy.Expr) -> str:
    """Write a sympy expression over symbols in the notation of this module.

    Raises:
        SaveError: ``expr`` uses a function that the format does not have.
    """
    if expr.is_Symbol:
        return str(expr)
    if isinstance(expr, sympy.Rational | int):
        return str(expr)
    if isinstance(expr, sympy.Float):
        return repr(float(expr))
    for name, value in _CONSTANTS.items():
        if expr == value:
            return name
    name = _NAMES.get(type(expr).__name__, "")
    if not name:
        msg = f"the size expression {expr} uses {type(expr).__name__}, which the format cannot express"
        raise SaveError(msg)
    parts = [to_text(arg) for arg in expr.args]
    if name in _COMMUTATIVE:
        parts.sort()
    return f"{name}({', '.join(parts)})"


def from_text(text: object, symbols: Mapping[str, sympy.Symbol]) -> Any:
    """Parse an expression. It may use only the symbols in ``symbols``.

    Raises:
        LoadError: the text is malformed, too long or too deep, or uses an unknown name.
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise LoadError(f"a size expression must be text of at most {MAX_LENGTH} characters")
    reader = _Reader(text, symbols)
    expr = reader.expression(0)
    if reader.peek() is not None:
        raise reader.error("text after the end")
    return expr


class _Reader:
    """A recursive-descent parser over the tokens of one expression."""

    def __init__(self, text: str, symbols: Mapping[str, sympy.Symbol]) -> None:
        self._text = text
        self._symbols = symbols
        self._tokens = list(self._split(text))
        self._at = 0

    def _split(self, text: str) -> list[tuple[str, str]]:
        """Return the tokens of the expression as (kind, text). Raise the reader's error at a character of no token."""
        tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise self.error(f"unexpected {text[at : at + 10]!r}")
            tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        return tokens

    def error(self, why: str) -> LoadError:
        return LoadError(f"malformed size expression {self._text[:200]!r}: {why}")

    def peek(self) -> tuple[str, str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def take(self, *expected: str) -> tuple[str, str]:
        """Return the next token and go on behind it. Raise the reader's error unless its text is in ``expected``."""
        token = self.peek()
        if token is None or (expected and token[1] not in expected):
            wanted = " or ".join(map(repr, expected)) or "a value"
            raise self.error(f"expected {wanted}, found {token[1] if token else 'the end'!r}")
        self._at += 1
        return token

    def expression(self, depth: int) -> Any:
        """Read one expression: a number, a symbol, a constant or a call. ``depth``: the number of calls around it."""
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH}")
        kind, text = self.take()
        if kind == "number":
            return _number(text)
        if kind == "mark":
            raise self.error(f"unexpected {text!r}")
        if self.peek() == ("mark", "("):
            return self._call(text, depth)
        if text in self._symbols:
            return self._symbols[text]
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        raise self.error(f"unknown symbol {text!r}")

    def _call(self, name: str, depth: int) -> Any:
        """Read the arguments of the function ``name``, and return its result."""
        if name not in FUNCTIONS:
            raise self.error(f"unknown function {name!r}")
        self.take("(")
        args = [self.expression(depth + 1)]
        while self.take(",", ")")[1] == ",":
            args.append(self.expression(depth + 1))
        _check_power(name, args, self)
        try:
            return FUNCTIONS[name](*args)
        except Exception as error:
            raise self.error(f"{name} does not accept these arguments ({error})") from error


def _check_power(name: str, args: list[Any], reader: _Reader) -> None:
    """Refuse literal powers and shifts whose value alone would exhaust memory."""
    exponential = ("Pow", "PowByNatural", "LShift", "FloatPow")
    if name in exponential and len(args) == 2 and args[1].is_number and abs(args[1]) > 4096:
        raise reader.error("an exponent above 4096")


def _number(text: str) -> Any:
    """Return the sympy number of a token: ``7``, ``1/3`` or ``0.5``."""
    if "/" in text:
        top, bottom = text.split("/")
        if int(bottom) == 0:
            raise LoadError("malformed size expression: division by zero")
        return sympy.Rational(int(top), int(bottom))
    if re.fullmatch(r"-?\d+", text):
        return sympy.Integer(int(text))
    return sympy.Float(text)
