"""Input numbers of a trace, and numbers that the program computes from one input number by C functions.

An input number is a constant or a symbol. If a function of an input number has no symbolic form, its result
becomes an additional input, and the source of this input computes the function (``NumberFormulas``). A guard
computes such a source step by step. Therefore a function of ``0.5 * (step - warmup)`` can be guarded like a
function of ``step``. If the number occurs several times in a formula, the formula is one step
(``native.formula``). This step repeats the operations of the program in their order, because floats are never
simplified.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import sympy

from fxstack_capture import native
from fxstack_capture.callers import calls_program
from fxstack_capture.guards.records import Equals, IdentityIs, TypeIs, WordIs
from fxstack_capture.shapes.geometry import Geometry, can_be_symbolic
from fxstack_capture.shapes.policy import Kind, plan_number
from fxstack_capture.shapes.symbolic.exact_comparisons import EXACT
from fxstack_capture.sources import Converted, Source
from fxstack_capture.torch_compat import FloorDiv, Mod, PowByNatural, PythonMod, ToFloat
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args

_NAMES: Mapping[Callable[..., Any], str] = MappingProxyType(
    {getattr(operator, name): name for name in ("__add__", "__sub__", "__mul__", "__truediv__", "__pow__")}
)
_BY_INTEGER: Mapping[type, str] = MappingProxyType(
    {Mod: "__rmod__", PythonMod: "__rmod__", FloorDiv: "__rfloordiv__"}
)

_EXACT: Mapping[type, Callable[..., Any]] = MappingProxyType(
    {
        sympy.Add: operator.add,
        sympy.Mul: operator.mul,
        sympy.Pow: operator.pow,
        PowByNatural: operator.pow,
        Mod: operator.mod,
        PythonMod: operator.mod,
        FloorDiv: operator.floordiv,
        ToFloat: float,
    }
)
"""Operations on integers that are exact in any order."""

_MAX_STEPS = 256
"""The largest number of steps of a formula (``native/guard_tree/formulas.c``)."""

_AS_FLOAT: Callable[[Any], Any] = (0.0).__add__

Step: TypeAlias = "tuple[Any, ...] | None"
"""A step of ``native.formula``: None (the input number), ``(constant,)``, or a function with the positions of
its operands.
"""

Placed = tuple["Source", Any]
"""A pair: a source, and its number in this call."""


class NumberFormulas:
    """The formulas of one trace. Equal formulas have one source."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self._known: dict[tuple[Source, str, str], Source] = {}

    def source_of(self, expr: object, value: float) -> Source | None:
        """Return the source that computes ``expr``. ``value`` is the value of ``expr`` in this call.

        Return None if ``expr`` depends on several input numbers or on a drawn number.
        """
        placed = self._place(expr) or self._whole(expr)
        if placed is None or type(placed[1]) is not type(value) or placed[1] != value:
            return None
        return placed[0]

    def _place(self, expr: sympy.Expr) -> Placed | None:
        """Return the source and the number of a formula that contains the input number once. Otherwise None."""
        primary = self._geometry.primary.get(expr)
        if primary is not None:
            source, number = primary
            # Guards run before the frame draws its numbers, so no source can compute from them.
            drawn = self._geometry.drawn_at(expr) is not None
            return None if drawn or number.node.hint is None else (source, number.node.hint)
        computed = self._geometry.computed.get(expr)
        if computed is not None:
            return self._operation(computed.operation.function, computed.operands)
        if isinstance(expr, ToFloat):
            whole = self._place(expr.args[0])
            return None if whole is None else self._step(whole, _AS_FLOAT, repr(0.0))
        if isinstance(expr, (sympy.Add, sympy.Mul)) and len(expr.args) == 2:
            function = operator.add if isinstance(expr, sympy.Add) else operator.mul
            first, second = expr.args
            return self._operation(function, (int(first), second)) if first.is_Integer else None
        if type(expr) in _BY_INTEGER and expr.args[1].is_Integer:
            return self._with_constant(self._place(expr.args[0]), int(expr.args[1]), _BY_INTEGER[type(expr)])
        return None

    def _whole(self, expr: sympy.Expr) -> Placed | None:
        """Return the source and the number of a formula that contains a number several times. None if C
        cannot compute it to a finite number.
        """
        inputs: dict[Source, Any] = {}
        steps: dict[Hashable, Step] = {}
        if self._position(expr, steps, inputs) is None or len(steps) > _MAX_STEPS or len(inputs) != 1:
            return None
        program = tuple(steps.values())
        ((source, number),) = inputs.items()
        formula = native.formula(program)
        try:
            result = formula(number)
        except ArithmeticError:
            return None
        if type(result) not in (int, float) or not math.isfinite(result):
            return None
        key = source, repr(program), ""
        return self._known.setdefault(key, Converted(source, formula)), result

    def _position(self, expr: object, steps: dict[Hashable, Step], inputs: dict[Source, Any]) -> int | None:
        """Return the position of the step that computes ``expr``. Add missing steps. None if C has no equal
        step.

        The input numbers of the formula are added to ``inputs``.
        """
        if not isinstance(expr, sympy.Basic) or expr.is_Integer:
            constant = int(expr) if isinstance(expr, sympy.Basic) else expr
            return _add((type(constant), repr(constant)), (constant,), steps)
        if expr in steps:
            return list(steps).index(expr)
        placed = self._place(expr) if expr in self._geometry.primary else None
        if placed is not None:
            inputs[placed[0]] = placed[1]
            return _add(expr, None, steps)
        computed = self._geometry.computed.get(expr)
        function, operands = _EXACT.get(type(expr)), expr.args
        if computed is not None:
            function, operands = computed.operation.function, computed.operands
        positions = [self._position(operand, steps, inputs) for operand in operands]
        is_root = isinstance(expr, sympy.Pow) and not expr.args[1].is_nonnegative
        if function is None or not positions or None in positions or is_root:
            return None
        position, *rest = positions
        if not rest:
            return _add(expr, (function, position), steps)
        for count, operand in enumerate(rest):
            key = expr if count == len(rest) - 1 else (expr, count)
            position = _add(key, (function, position, operand), steps)
        return position

    def _operation(self, function: Callable[..., Any], operands: Args) -> Placed | None:
        """Return the source and the number of an operation. Its other operand, if there is one, is a
        constant. None for any other operation.
        """
        if len(operands) == 1:
            placed = self._place(operands[0])
            return None if placed is None else self._step(placed, function, "")
        left, right = operands
        name = _NAMES.get(function)
        if name is None or isinstance(left, sympy.Basic) == isinstance(right, sympy.Basic):
            return None
        if isinstance(right, sympy.Basic):
            return self._with_constant(self._place(right), left, name)
        return self._with_constant(self._place(left), right, f"__r{name[2:]}")

    def _with_constant(self, placed: Placed | None, constant: float, name: str) -> Placed | None:
        """Apply the method ``name`` of ``constant`` to a placed number.

        If one of the two is a float, an integer must be exact as a float. Otherwise, return None.
        """
        if placed is None or type(constant) not in (int, float):
            return None
        if type(placed[1]) is float and type(constant) is int:
            # The methods of an integer do not accept a float. Python converts the integer first.
            if abs(constant) > EXACT:
                return None
            constant = float(constant)
        return self._step(placed, getattr(constant, name), repr(constant))

    def _step(self, placed: Placed, by: Callable[[Any], Any], constant: str) -> Placed | None:
        """Return the source and the number of ``by`` applied to a placed number. None if the result is not
        finite. ``constant`` makes the step unique.
        """
        source, value = placed
        try:
            result = by(value)
        except ArithmeticError:
            return None
        if type(result) not in (int, float) or not math.isfinite(result):
            return None
        key = source, by.__name__, constant
        return self._known.setdefault(key, Converted(source, by)), result


def _add(key: Hashable, step: Step, steps: dict[Hashable, Step]) -> int:
    """Return the position of the step with ``key``. A missing step is added."""
    steps.setdefault(key, step)
    return list(steps).index(key)


class InputNumbers:
    """The input numbers of one trace."""

    def __init__(self, tracer: TracerProtocol) -> None:
        self._trace = tracer.trace
        self._history = tracer.history
        self._geometry = tracer.geometry
        self._formulas = NumberFormulas(tracer.geometry)
        self._functions: dict[Source, Any] = {}
        self._symbols: dict[Source, Any] = {}

    def enter(self, value: float, source: Source) -> Any:
        """Return the constant or symbol of an input number, and guard it. ``TorchSide.enter_number`` calls
        this.
        """
        trace, contract = self._trace, self._trace.contract
        kind = plan_number(value, source, self._history, trace.options, contract, choices=trace.choices)
        if kind is Kind.STATIC or not can_be_symbolic(value):
            self._trace.guard(source, Equals(value))
            return value
        hint = None if contract is None else contract.numbers.get(source)
        if hint is not None and isinstance(value, int):
            self._trace.guard(source, WordIs())
            return self._geometry.contracted_number(value, source, hint)
        return self._symbol(value, source)

    def place_of(self, number: Any) -> Source | None:
        """Return the source that computes a symbolic number from one input number. None if there is none.

        ``function_of`` calls this, and so does the read of a list item at a symbolic index
        (``TorchSide.place_of``).
        """
        hint = number.node.hint
        return None if hint is None else self._formulas.source_of(number.node.expr, hint)

    @calls_program
    def function_of(self, fn: Callable[[Any], Any], number: Any) -> Any:
        """Return the result of ``fn``, a C function without effects, for a symbolic number of an input.

        A guard computes ``fn`` again, so the result is exact. If ``fn`` raises for the number of another
        call, the guard fails. Return None if the number is drawn, depends on several inputs, or is not known
        yet. Return None if the result cannot be symbolic.
        """
        source = self.place_of(number)
        if source is None:
            return None
        computed = Converted(source, fn)
        if computed not in self._functions:
            try:
                value = fn(number.node.hint)
            except (ValueError, OverflowError):  # the program's own error
                return None
            if type(value) is bool:
                self._trace.guard(computed, IdentityIs(value, id(value)))
                return value
            if not can_be_symbolic(value):
                return None
            self._functions[computed] = self._symbol(value, computed)
        return self._functions[computed]

    def _symbol(self, value: float, source: Source) -> Any:
        """Return the symbol of ``source``. The first use makes it, with the value of this call, ``value``."""
        if source not in self._symbols:
            whole = isinstance(value, int)
            self._trace.guard(source, WordIs() if whole else TypeIs(type(value)))
            make: Any = self._geometry.number if whole else self._geometry.real_number
            self._symbols[source] = make(value, source)
        return self._symbols[source]
