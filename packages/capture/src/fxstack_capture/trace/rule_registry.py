"""``Registry``: the rules that run in place of callables while tracing.

All rules have one signature: ``rule(context, fn, args, kwargs)``. ``context`` is the trace (in ``calls``) or
the tracer of torch calls (in ``torch_side``). ``fn`` is the callable that the program called, so one rule can
serve many callables. A rule returns the result of the call, raises the exception that the program would see,
or breaks the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import CodeType, FunctionType
from typing import Any

from fxstack_capture.callers import plainly

Rule = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""A function ``rule(context, fn, args, kwargs)`` that runs in place of ``fn``."""
Request = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""A call to make: the callable, its positional arguments and its keyword arguments."""


def run_plainly(_context: object, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make the call for real, on the objects of the trace.

    This is the rule of callables that read and change nothing outside of their arguments.
    """
    return plainly(fn, args, kwargs)


class Registry:
    """Rules by callable, by code object, by qualified name, and by the class of the callable.

    Modules of rules fill the registry when they are imported.
    """

    def __init__(self) -> None:
        self.objects: dict[int, Rule] = {}
        """Rules by the id of their callable. A function that replaces the original has no rule."""
        self.original_codes: dict[int, CodeType] = {}
        """The code of each Python function in ``objects`` at its registration. The key is the id of the
        function.
        """
        self.forwarding: set[int] = set()
        """Ids of the callables whose rules return the call to make (a ``Request``) in place of a result."""
        self._codes: dict[int, Rule] = {}
        """Rules by the id of a code object. They apply to all functions with this code."""
        self._names: dict[str, dict[str, Rule]] = {}
        """Rules by qualified name, then by module. The module "" stands for any module."""
        self.classes: dict[type, Rule] = {}
        """Rules for calls of instances of a class. They do not apply to its subclasses."""
        self._alive: list[object] = []  # keeps the keys alive, because the rules are keyed by their ids

    def add(self, rule: Rule, *keys: object) -> None:
        """Register a rule.

        A key is a callable, a code object, or a qualified name: ``"Class.method"`` of any module, or
        ``"package.module:Class.method"`` of one module. Qualified names serve for functions in modules that
        may not be loaded, and for wrappers, which are made anew at each use.

        Raises:
            ValueError: a key already has another rule.
        """
        for key in keys:
            if isinstance(key, str):
                module, _, name = key.rpartition(":")
                rules: dict[Any, Rule] = self._names.setdefault(name, {})
                index: int | str = module
            else:
                rules = self._codes if isinstance(key, CodeType) else self.objects
                index = id(key)
            if rules.get(index, rule) is not rule:
                raise ValueError(f"{key} has more than one rule")
            rules[index] = rule
            self._alive.append(key)
            if isinstance(key, FunctionType):
                self.original_codes[id(key)] = key.__code__

    def rule(self, *keys: object) -> Callable[[Rule], Rule]:
        """Decorator: register a rule for these callables, code objects or qualified names (see ``add``)."""

        def register(rule: Rule) -> Rule:
            """Register ``rule`` for ``keys`` and return it unchanged."""
            self.add(rule, *keys)
            return rule

        return register

    def instances(self, cls: type) -> Callable[[Rule], Rule]:
        """Decorator: register a rule for calls of the instances of a class. It does not apply to subclasses."""

        def register(rule: Rule) -> Rule:
            """Register ``rule`` for ``cls`` and return it unchanged."""
            self.classes[cls] = rule
            return rule

        return register

    def unpacked(
        self, *keys: object, count: tuple[int, int] | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: register ``rule(context, *args, **kwargs)``.

        With ``count``, the least and the largest number of positional arguments, the rule takes no keyword
        arguments. CPython makes any other call, which raises the right error.
        """

        def register(rule: Callable[..., Any]) -> Callable[..., Any]:
            """Register a wrapper of ``rule`` that has the signature of all rules. Return ``rule`` unchanged."""

            @wraps(rule)
            def unpacking(context: object, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                if count is not None and (kwargs or not count[0] <= len(args) <= count[1]):
                    return plainly(fn, args, kwargs)
                return rule(context, *args, **kwargs)

            self.add(unpacking, *keys)
            return rule

        return register

    def forward(self, fn: object) -> Callable[[Rule], Rule]:
        """Decorator: register a rule that returns a ``Request``.

        The dispatch of calls makes the requested call in place of the call of ``fn``.
        """
        self.forwarding.add(id(fn))
        return self.rule(fn)

    def of_code(self, fn: FunctionType) -> Rule | None:
        """Return the rule of the code object of ``fn``, or None. Called for a function without a rule of its
        own.
        """
        return self._codes.get(id(fn.__code__))

    def of_name(self, fn: FunctionType) -> Rule | None:
        """Return the rule of the qualified name of ``fn``, or of the name of its code, or None.

        The name of the code is also tried, because ``functools.wraps`` renames functions.
        """
        names = self._names
        rules = names.get(fn.__qualname__) or names.get(fn.__code__.co_qualname)
        return None if rules is None else rules.get(fn.__module__) or rules.get("")
