"""Registered behaviour: what a call of a definite callable means while tracing.

A rule is found by the identity of the callable, so a replaced function is not mistaken for the
original. It gets the trace and the arguments as they were passed, raises what the program would
see, or breaks the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fxstack_capture.trace import Trace

    Rule = Callable[[Trace, tuple[Any, ...], dict[str, Any]], Any]


class RuleTable:
    """Rules by callable. Filled at import time, one topic per file, and joined once."""

    def __init__(self, parts: Iterable[RuleTable] = ()) -> None:
        self._rules: dict[int, tuple[object, Rule]] = {}
        for part in parts:
            self._rules.update(part._rules)

    def rule(self, *callables: object) -> Callable[[Rule], Rule]:
        """Decorator: the rule of these callables."""

        def register(rule: Rule) -> Rule:
            for fn in callables:
                self.add(fn, rule)
            return rule

        return register

    def add(self, fn: object, rule: Rule) -> None:
        self._rules[id(fn)] = (fn, rule)

    def by_id(self) -> dict[int, Rule]:
        """The rules by the id of their callable (which the table keeps alive)."""
        return {key: rule for key, (_, rule) in self._rules.items()}

    def __contains__(self, fn: object) -> bool:
        return id(fn) in self._rules
