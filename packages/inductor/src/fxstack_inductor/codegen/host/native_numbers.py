"""Numbers that a native host program computes in C: floats of Python, operation by operation, and integers.

The C variable of a number says whether its value is known in C. Where it is not (another type, an integer beyond
2**53, a zero divisor, an overflow), the step calls back Python, which computes the number or raises.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.names import symbols_of
from fxstack_inductor.codegen.host.native_text import CText, callback, returning
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import Expr, Var
from fxstack_inductor.ir.nodes import ExternCall

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
