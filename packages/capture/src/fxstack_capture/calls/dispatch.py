"""``CallDispatcher``: decide what a call does, and do it.

A rule of ``SOURCES`` decides first, then the first case of ``decisions.cases`` that holds for the callable. ``rule``
on the command line (``decisions.explaining``) asks the same rules and cases.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from fxstack_capture.calls import rehashing, scan
from fxstack_capture.calls import resumable as linked
from fxstack_capture.calls.decisions.case import Case, Runner
from fxstack_capture.calls.decisions.cases import cases_of
from fxstack_capture.calls.marks.optional import with_options
from fxstack_capture.calls.marks.registered import registered
from fxstack_capture.calls.marks.told_torch import rules_told_torch
from fxstack_capture.calls.native_run import run, run_intercepted
from fxstack_capture.calls.operators import numpy_scalars
from fxstack_capture.calls.operators import protocol as operators
from fxstack_capture.calls.polyfills.requests import REQUESTS, request
from fxstack_capture.calls.rules.joined import RULES
from fxstack_capture.calls.table import Rule
from fxstack_capture.kernels.launching import launch_rules
from fxstack_capture.objects.kinds.functions import guard_part
from fxstack_capture.sources import pinned
from fxstack_capture.torch_side.recording.function_mode import outside_c_code
from fxstack_capture.trace.state import Objects, Trace

SOURCES: Final[tuple[tuple[str, Callable[[], Mapping[int, Rule]]], ...]] = (
    ("rule of this package (calls/rules)", RULES.by_id),
    ("launch of a Triton kernel", launch_rules),
    ("rule that the program gave to torch.compile", rules_told_torch),
    ("rule that the program registered", registered),
)
"""Where rules of callables come from. A later source takes precedence; the options of a trace come after all."""


class CallDispatcher:
    """The implementation of ``trace.state.Calls``.

    Siblings may add entries to ``rules`` before the trace starts.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        known = {key: rule for _, source in SOURCES for key, rule in source().items()}
        self.rules = with_options(known, trace.options)
        self.forwards = RULES.forwards_by_id()
        self.codes = RULES.codes_by_id()
        self.guarded: set[int] = set()
        self.leaves: dict[int, tuple[object, bool]] = {}
        self.scanned = dict(scan.CODES)
        """What ``scan`` knows of classes."""

    @property
    def objects(self) -> Objects:
        return self.trace.objects

    def rule_of(self, fn: Any) -> Rule | None:
        """The rule of a callable.

        The rule of a Python function holds only while the function has its original code. A guard checks the
        code.
        """
        rule = self.rules.get(id(fn))
        code = None if rule is None else self.codes.get(id(fn))
        if code is not None and id(fn) not in self.guarded:
            if fn.__code__ is not code:
                return None
            self.guarded.add(id(fn))
            guard_part(self.objects, fn, "__code__", pinned(fn, fn.__qualname__))
        return rule

    def decide(self, fn: object) -> tuple[Case, Runner]:
        """Return the case of a callable without a rule, and the function that runs a call."""
        for case in cases_of(fn):
            run_call = case.find(self, fn)
            if run_call is not None:
                return case, run_call
        raise AssertionError(f"no case holds for {fn!r}")

    def call(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = self.rule_of(fn)
        if rule is None:
            return self.decide(fn)[1](self, fn, args, kwargs)
        # Most rules accept only constants, so replace NumPy scalars that change between calls.
        if self.trace.torch.arrays.has_scalars:
            args, kwargs = numpy_scalars.given(self, fn, args, kwargs)
        return rule(self.trace, args, kwargs)

    def call_back(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            with outside_c_code():
                return self.call(fn, args, kwargs)
        except Exception as error:
            self.trace.interp.demand_program(error)
            raise

    def call_linked(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return linked.call(self, fn, args, kwargs)

    def is_interpreted(self, fn: types.FunctionType) -> bool:
        return linked.is_interpreted(self, fn)

    def request(self, what: str, *operands: object) -> tuple[Any, tuple[Any, ...]] | None:
        return request(self, REQUESTS[what], operands)

    def native(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return run(self.trace, fn, args, kwargs)

    def watched(self, fn: Callable[..., Any], *args: object) -> Any:
        return run_intercepted(self.trace, fn, args, {})

    def without_effects(self, keys: Iterable[object]) -> AbstractContextManager[None]:
        return rehashing.without_effects(self.trace, keys)

    def special_method(self, obj: object, name: str) -> Any:
        return operators.special_method(self, obj, name)

    def binary(self, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
        return operators.binary(self, op, left, right)

    def unary(self, op: Callable[[Any], Any], value: object) -> Any:
        return operators.unary(self, op, value)

    def truth(self, value: object) -> bool:
        return operators.truth(self, value)

    def iterate(self, value: object) -> Any:
        return operators.iterate(self, value)

    def next(self, iterator: object) -> Any:
        return operators.advance(self, iterator)

    def is_leaf(self, fn: object) -> bool:
        """The result of ``trace.torch.is_leaf``, computed once for each callable."""
        found = self.leaves.get(id(fn))
        if found is None:
            # The table keeps ``fn`` alive, so its id stays valid.
            found = self.leaves[id(fn)] = (fn, self.trace.torch.is_leaf(fn))
        return found[1]
