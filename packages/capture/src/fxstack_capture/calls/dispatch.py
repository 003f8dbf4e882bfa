"""``CallDispatcher``: decide what a call does, and make the call.

The first row of ``decisions.precedence`` that applies to a callable decides. The command ``rule``
(``decisions.explaining``) asks the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any, Final

from fxstack_capture.calls import rehashing, scan
from fxstack_capture.calls.decisions.classes import construct
from fxstack_capture.calls.decisions.precedence import CLASS, INTERPRETED, SOURCES, Case, cases_of
from fxstack_capture.calls.marks.program_rules import with_options
from fxstack_capture.calls.native_run import run, run_intercepted
from fxstack_capture.calls.operators import numpy_scalars
from fxstack_capture.calls.operators import protocol as operators
from fxstack_capture.calls.polyfills.requests import REQUESTS, of_call, request
from fxstack_capture.calls.rules import RULES
from fxstack_capture.objects.kinds.functions import guard_part
from fxstack_capture.sources import pinned
from fxstack_capture.torch_side.recording.function_mode import outside_c_code
from fxstack_capture.trace.records import RETURNED
from fxstack_capture.trace.rule_registry import Rule
from fxstack_capture.trace.state import Args, Kwargs, Objects, Trace

_QUANTIFIERS: Final = frozenset({id(all), id(any)})
"""The ids of ``all`` and ``any``."""


class CallDispatcher:
    """Decides and makes the calls of one trace. It implements ``trace.state.Calls``.

    Other modules may add entries to ``rules`` before the trace starts.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        rules: dict[int, Rule] = {}
        for _, source in reversed(SOURCES):
            rules.update(source())
        self.rules = with_options(rules, trace.options)
        self.guarded: set[int] = set()
        self.leaves: dict[int, tuple[object, bool]] = {}
        self.scanned = dict(scan.CODES)
        """Maps each class that ``scan`` has seen to its code (see ``scan.CODES``)."""

    @property
    def objects(self) -> Objects:
        """The object model of the trace."""
        return self.trace.objects

    def rule_of(self, fn: Any) -> Rule | None:
        """Return the rule that is registered for exactly this callable, or None.

        The rule of a Python function applies only as long as the function has its original code. The code is
        guarded.
        """
        rule = self.rules.get(id(fn))
        code = None if rule is None else RULES.original_codes.get(id(fn))
        if code is not None and id(fn) not in self.guarded:
            if fn.__code__ is not code:
                return None
            self.guarded.add(id(fn))
            guard_part(self.objects, fn, "__code__", pinned(fn, fn.__qualname__))
        return rule

    def decide(self, fn: object) -> tuple[Case, Rule]:
        """Return the case that applies to a callable without a rule by identity, and the function that runs
        the call.
        """
        for case in cases_of(fn):
            rule = case.find(self, fn)
            if rule is not None:
                return case, case.run or rule
        raise AssertionError(f"no case holds for {fn!r}")

    def call(self, fn: object, args: Args, kwargs: Kwargs) -> Any:
        """Make a call by the order of precedence, and return its result."""
        return self._call(fn, args, kwargs, resumable=False)

    def call_linked(self, fn: object, args: Args, kwargs: Kwargs) -> Any:
        """Make a resumable call: its result is the result of the caller's bytecode instruction.

        The graph can therefore break inside of a Python function that the call reaches. The call may reach it
        through methods, partial objects, instances with ``__call__``, and classes with ``__init__``.
        """
        return self._call(fn, args, kwargs, resumable=True)

    def _call(self, fn: Any, args: Args, kwargs: Kwargs, *, resumable: bool) -> Any:
        """Make a call by the first row that applies. If the row forwards, decide the call that it returns."""
        trace = self.trace
        while True:
            if (
                resumable
                and type(fn) is not FunctionType
                and (trace.plan.polyfills or id(fn) in _QUANTIFIERS)
            ):
                # This trace found a graph break below C code. If the C code calls back, a polyfill replaces
                # it. ``all`` and ``any`` may be part of a check (``interpreter.checks``), which follows
                # bytecode.
                polyfill = of_call(self, fn, args, kwargs)
                if polyfill is not None:
                    fn, args, kwargs = *polyfill, {}
                    continue
            rule = self.rule_of(fn)
            if rule is None:
                case, rule = self.decide(fn)
                if case.forwards:
                    fn, args, kwargs = rule(trace, fn, args, kwargs)
                    continue
                if resumable and case is INTERPRETED:
                    return trace.interp.call_linked(fn, args, kwargs, RETURNED)
                if resumable and case is CLASS:
                    return construct(trace, fn, args, kwargs, resumable=True)
            elif id(fn) in RULES.forwarding:
                fn, args, kwargs = rule(trace, fn, args, kwargs)
                continue
            # Most rules accept only constants, so NumPy scalars that change between calls are replaced.
            elif trace.torch.arrays.has_scalars:
                args, kwargs = numpy_scalars.for_rule(self, fn, args, kwargs)
            return rule(trace, fn, args, kwargs)

    def is_interpreted(self, fn: FunctionType) -> bool:
        """Whether a call of ``fn`` interprets its bytecode. If a rule or another case decides the call, it
        does not.
        """
        return self.rule_of(fn) is None and self.decide(fn)[0] is INTERPRETED

    def call_back(self, fn: object, args: Args, kwargs: Kwargs) -> Any:
        """Make a call for C code that runs for real.

        C code must not mistake an error of the tracer for an error of the program, so such an error becomes a
        graph break.
        """
        try:
            with outside_c_code():
                return self.call(fn, args, kwargs)
        except Exception as error:
            self.trace.interp.demand_program(error)
            raise

    def request(self, what: str, *operands: object) -> tuple[Any, tuple[Any, ...]] | None:
        """Return the request that replaces the C code of an interpreter step, or None. ``what`` is a key of
        ``REQUESTS``.
        """
        return request(self, REQUESTS[what], operands)

    def native(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run a C function for real on objects of the trace."""
        return run(self.trace, fn, args, kwargs)

    def watched(self, fn: Callable[..., Any], *args: object) -> Any:
        """Run ``fn`` for real. Python frames that it starts are interpreted, and its torch calls are
        recorded.
        """
        return run_intercepted(self.trace, fn, args, {})

    def without_effects(self, keys: Iterable[object]) -> AbstractContextManager[None]:
        """Return a context that breaks the graph if hashing ``keys`` has a visible side effect."""
        return rehashing.without_effects(self.trace, keys)

    def special_method(self, obj: object, name: str) -> Any:
        """Return the Python function of the program that implements a special method of ``obj``, or None."""
        return operators.special_method(self, obj, name)

    def binary(self, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
        """Return ``op(left, right)`` of objects of the trace."""
        return operators.binary(self, op, left, right)

    def unary(self, op: Callable[[Any], Any], value: object) -> Any:
        """Return ``op(value)`` of an object of the trace."""
        return operators.unary(self, op, value)

    def truth(self, value: object) -> bool:
        """Return the truth of an object of the trace, or break the graph."""
        return operators.truth(self, value)

    def iterate(self, value: object) -> Any:
        """Return ``iter(value)`` of an object of the trace."""
        return operators.iterate(self, value)

    def next(self, iterator: object) -> Any:
        """Return the next item of an iterator of the trace. Raises StopIteration at the end."""
        return operators.advance(self, iterator)

    def is_leaf(self, fn: object) -> bool:
        """Return ``trace.torch.is_leaf(fn)``. It is computed once for each callable."""
        known_leaf = self.leaves.get(id(fn))
        if known_leaf is None:
            # The table keeps ``fn`` alive, so its id stays valid.
            known_leaf = self.leaves[id(fn)] = (fn, self.trace.torch.is_leaf(fn))
        return known_leaf[1]
