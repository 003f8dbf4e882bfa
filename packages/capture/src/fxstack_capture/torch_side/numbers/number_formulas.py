"""Sources for numbers that the program computes from one input number and constants, by C functions.

A guard computes such a number step by step. Therefore a function of ``0.5 * (step - warmup)`` can be guarded
like a function of ``step``. A formula in which the number occurs several times is one step (``native.formula``),
which repeats the operations of the program in their order: floats are never simplified.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import sympy

from fxstack_capture import native
from fxstack_capture.shapes.geometry import Geometry
from fxstack_capture.shapes.symbolic.exact_comparisons import EXACT
from fxstack_capture.sources import Converted, Source
from fxstack_capture.torch_compat import FloorDiv, Mod, PowByNatural, PythonMod, ToFloat

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
"""Operations on integers, which are exact in any order."""

_LONGEST = 256
"""Steps of a formula (``native/guard_tree/formulas.c``)."""

_AS_FLOAT: Callable[[Any], Any] = (0.0).__add__

Step: TypeAlias = "tuple[Any, ...] | None"
"""A step of ``native.formula``."""

Placed = tuple["Source", Any]
"""A source, and the present number of the source."""


class NumberFormulas:
    """The formulas of one trace. Equal formulas have the same source."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self._known: dict[tuple[Source, str, str], Source] = {}

    def source_of(self, expr: object, value: float) -> Source | None:
        """Return the source of ``expr``, whose present value is ``value``.

        Return ``None`` if ``expr`` depends on several input numbers or on a drawn number.
        """
        placed = self._place(expr) or self._whole(expr)
        if placed is None or type(placed[1]) is not type(value) or placed[1] != value:
            return None
        return placed[0]

    def _place(self, expr: sympy.Expr) -> Placed | None:
        found = self._geometry.primary.get(expr)
        if found is not None:
            source, number = found
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
        """Place a formula in which a number occurs several times."""
        found: dict[Source, Any] = {}
        steps: dict[Hashable, Step] = {}
        if self._position(expr, steps, found) is None or len(steps) > _LONGEST or len(found) != 1:
            return None
        program = tuple(steps.values())
        ((source, number),) = found.items()
        formula = native.formula(program)
        try:
            result = formula(number)
        except ArithmeticError:
            return None
        if type(result) not in (int, float) or not math.isfinite(result):
            return None
        key = source, repr(program), ""
        return self._known.setdefault(key, Converted(source, formula)), result

    def _position(self, expr: object, steps: dict[Hashable, Step], found: dict[Source, Any]) -> int | None:
        """Return the position of the step of ``expr``, and add missing steps; None if C has no such step.

        ``found`` gets the input numbers.
        """
        if not isinstance(expr, sympy.Basic) or expr.is_Integer:
            constant = int(expr) if isinstance(expr, sympy.Basic) else expr
            return _add((type(constant), repr(constant)), (constant,), steps)
        if expr in steps:
            return list(steps).index(expr)
        placed = self._place(expr) if expr in self._geometry.primary else None
        if placed is not None:
            found[placed[0]] = placed[1]
            return _add(expr, None, steps)
        computed = self._geometry.computed.get(expr)
        function, operands = _EXACT.get(type(expr)), expr.args
        if computed is not None:
            function, operands = computed.operation.function, computed.operands
        places = [self._position(operand, steps, found) for operand in operands]
        is_root = isinstance(expr, sympy.Pow) and not expr.args[1].is_nonnegative
        if function is None or not places or None in places or is_root:
            return None
        made, *rest = places
        if not rest:
            return _add(expr, (function, made), steps)
        for count, place in enumerate(rest):
            key = expr if count == len(rest) - 1 else (expr, count)
            made = _add(key, (function, made, place), steps)
        return made

    def _operation(self, function: Callable[..., Any], operands: tuple[Any, ...]) -> Placed | None:
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
        if placed is None or type(constant) not in (int, float):
            return None
        if type(placed[1]) is float and type(constant) is int:
            if abs(constant) > EXACT:
                return None
            constant = float(constant)
        return self._step(placed, getattr(constant, name), repr(constant))

    def _step(self, placed: Placed, by: Callable[[Any], Any], constant: str) -> Placed | None:
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
    """Return the position of the step with ``key``, which is added if it is missing."""
    steps.setdefault(key, step)
    return list(steps).index(key)
