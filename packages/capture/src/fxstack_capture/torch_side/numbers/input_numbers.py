"""Input numbers, and functions of input numbers without a symbolic form: constants or graph inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxstack_capture.callers import calls_program
from fxstack_capture.guards.records import Equals, IdentityIs, TypeIs, WordIs
from fxstack_capture.shapes.geometry import can_be_symbolic
from fxstack_capture.shapes.policy import Kind, plan_number
from fxstack_capture.sources import Converted, Source
from fxstack_capture.torch_side.numbers.number_formulas import NumberFormulas
from fxstack_capture.torch_side.recording.protocol import TracerProtocol


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
        """Implement ``trace.TorchSide.enter_number``."""
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
        """Implement ``trace.TorchSide.place_of``."""
        hint = number.node.hint
        return None if hint is None else self._formulas.source_of(number.node.expr, hint)

    @calls_program
    def function_of(self, fn: Callable[[Any], Any], number: Any) -> Any:
        """Return the result of ``fn``, a C function without effects, for a symbolic number of an input.

        A guard computes ``fn`` again, so the result is exact. If ``fn`` raises for the number of another
        call, the guard fails. Return ``None`` for a number that is drawn, that depends on several inputs, or
        that is not known yet. Return ``None`` if the result cannot be symbolic.
        """
        source = self.place_of(number)
        if source is None:
            return None
        found = Converted(source, fn)
        if found not in self._functions:
            try:
                value = fn(number.node.hint)
            except (ValueError, OverflowError):  # the program's own error
                return None
            if type(value) is bool:
                self._trace.guard(found, IdentityIs(value, id(value)))
                return value
            if not can_be_symbolic(value):
                return None
            self._functions[found] = self._symbol(value, found)
        return self._functions[found]

    def _symbol(self, value: float, source: Source) -> Any:
        if source not in self._symbols:
            whole = isinstance(value, int)
            self._trace.guard(source, WordIs() if whole else TypeIs(type(value)))
            make: Any = self._geometry.number if whole else self._geometry.real_number
            self._symbols[source] = make(value, source)
        return self._symbols[source]
