"""``RuleTable``: rules of callables.

A rule runs in place of a callable while tracing. Rules are found by the identity of the callable, so a
function that replaces the original has no rule. A rule gets the trace and the unchanged arguments. A rule
returns the result, raises the exception that the program would see, or breaks the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from types import CodeType, FunctionType
from typing import Any

from fxstack_capture.callers import plainly
from fxstack_capture.trace.state import Trace

Rule = Callable[[Trace, tuple[Any, ...], dict[str, Any]], Any]
Positional = Callable[..., Any]
Request = tuple[Any, tuple[Any, ...], dict[str, Any]]
Forward = Callable[[Trace, tuple[Any, ...], dict[str, Any]], Request]


def _run_plainly(fn: Any, _trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return plainly(fn, args, kwargs)


class RuleTable:
    """Rules by callable.

    Each topic has one file, which fills its table at import time. One table joins all topics.
    """

    def __init__(self, parts: Iterable[RuleTable] = ()) -> None:
        self._rules: dict[int, tuple[object, Rule]] = {}
        self._forwards: dict[int, Forward] = {}
        for part in parts:
            if twice := [fn for key, (fn, _) in part._rules.items() if key in self._rules]:
                raise ValueError(f"more than one topic has a rule for {twice}; all but one would be lost")
            self._rules.update(part._rules)
            self._forwards.update(part._forwards)

    def rule(self, *callables: object) -> Callable[[Rule], Rule]:
        """Decorator: register the rule of these callables."""

        def register(rule: Rule) -> Rule:
            for fn in callables:
                self.add(fn, rule)
            return rule

        return register

    def positional(self, fn: Any, least: int, most: int | None = None) -> Callable[[Positional], Positional]:
        """Decorator: the rule of ``fn``, as ``rule(trace, *args)``, for ``least`` to ``most`` positional arguments.

        Any other call is made plainly: CPython has the error.
        """
        counts = range(least, (least if most is None else most) + 1)

        def register(rule: Positional) -> Positional:
            @wraps(rule)
            def checked(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                if kwargs or len(args) not in counts:
                    return plainly(fn, args, kwargs)
                return rule(trace, *args)

            self.add(fn, checked)
            return rule

        return register

    def plain(self, *callables: Any) -> None:
        """Callables that run as they are: they ask and change nothing that concerns the trace."""
        for fn in callables:
            self.add(fn, partial(_run_plainly, fn))

    def forward(self, fn: object) -> Callable[[Forward], Forward]:
        """Decorator: register a function that returns the call to make in place of a call of ``fn``.

        The function returns a callable, its arguments and its keywords.
        """

        def register(forward: Forward) -> Forward:
            @wraps(forward)
            def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                return trace.calls.call(*forward(trace, args, kwargs))

            self.add(fn, rule)
            self._forwards[id(fn)] = forward
            return forward

        return register

    def forwards_by_id(self) -> dict[int, Forward]:
        """The rules that only forward to another call."""
        return dict(self._forwards)

    def add(self, fn: object, rule: Rule) -> None:
        self._rules[id(fn)] = (fn, rule)

    def by_id(self) -> dict[int, Rule]:
        """The rules by the id of their callable.

        The table keeps the callables alive, so the ids stay valid.
        """
        return {key: rule for key, (_, rule) in self._rules.items()}

    def codes_by_id(self) -> dict[int, CodeType]:
        """The code objects of the Python functions that have a rule."""
        return {k: fn.__code__ for k, (fn, _) in self._rules.items() if type(fn) is FunctionType}

    def __contains__(self, fn: object) -> bool:
        return id(fn) in self._rules
