"""Functions that the options set aside: calls that happen behind the graph, and calls that do nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any

from fxstack_capture.calls.marks.registered import Rule, label_of
from fxstack_capture.options import CaptureOptions
from fxstack_capture.sources import pinned
from fxstack_capture.trace.effects import Call
from fxstack_capture.trace.state import Trace

# Limits: the arguments of a reordered call are read when the frame is left, so a tensor or a list that changes
# between the call and the end of the frame is seen changed, as under torch.compile.


def with_options(rules: Mapping[int, Rule], options: CaptureOptions) -> dict[int, Rule]:
    """Return ``rules``, by the id of the callable, with those of ``reorderable_functions`` and ``ignored_functions``."""
    reordered = _added(rules, options.reorderable_functions, _reordered)
    return _added(reordered, options.ignored_functions, lambda _fn: _ignored)


def _added(
    rules: Mapping[int, Rule], functions: Iterable[Any], rule_of: Callable[[Any], Rule]
) -> dict[int, Rule]:
    """A method of one object has the new rule if it is called for this object, and the old one otherwise."""
    found = dict(rules)
    for fn in functions:
        rule = rule_of(fn)
        if type(fn) is MethodType:
            found[id(fn.__func__)] = _for_object(fn, rule, found.get(id(fn.__func__)))
        else:
            found[id(fn)] = rule
    return found


def _for_object(method: MethodType, chosen: Rule, otherwise: Rule | None) -> Rule:
    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and trace.objects.original_of(args[0]) is method.__self__:
            return chosen(trace, args, kwargs)
        if otherwise is not None:
            return otherwise(trace, args, kwargs)
        return trace.interp.call_function(method.__func__, args, kwargs)

    return rule


def _ignored(_trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    """The call does nothing."""


def _reordered(fn: Callable[..., Any]) -> Rule:
    function = getattr(fn, "__func__", fn)

    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        trace.objects.deferred.append(Call(pinned(function, label_of(function)), args, dict(kwargs)))

    return rule
