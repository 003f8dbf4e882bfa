"""Rules that programs add for their own callables at any time, keyed by the identity of the callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any, Final

from fxstack_capture.breaks import graph_break
from fxstack_capture.effects.diff import diff
from fxstack_capture.effects.records import Call
from fxstack_capture.sources import pinned
from fxstack_capture.trace.state import Objects, Trace

# Limits: a leaf function (torch._dynamo.decorators.leaf_function) breaks the graph.

Rule = Callable[..., Any]
"""``(trace, args, kwargs) -> result``, as in ``table``."""

# Registrations outlive every compiler, like registrations of torch.library. ``reset`` does not delete them.
_RULES: Final[dict[int, tuple[object, Rule]]] = {}


def register(fn: object, rule: Rule) -> None:
    """Register ``rule`` for calls of ``fn``."""
    _RULES[id(fn)] = (fn, rule)


def registered() -> Mapping[int, Rule]:
    """All rules by the id of their callable. The table keeps the callables alive."""
    return MappingProxyType({key: rule for key, (_, rule) in _RULES.items()})


def label_of(fn: object) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)


def as_one_node(fn: Callable[..., Any]) -> Rule:
    """Record the call as one node of the graph. ``fn`` runs on fake tensors to compute the results."""

    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return trace.torch.call(fn, args, kwargs)

    return rule


def ending_the_graph(fn: object, reason: str) -> Rule:
    """Break the graph at the call. The call runs in plain Python between two graphs."""

    def rule(_trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        raise graph_break(reason, label_of(fn))

    return rule


def traced_as(substitute: object) -> Rule:
    """Call ``substitute`` in place of the callable."""

    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return trace.calls.call(substitute, args, kwargs)

    return rule


def called_once(fn: Callable[..., Any]) -> Rule:
    """Call ``fn`` for real while tracing, and treat its result as a constant.

    A real call would not see values of the graph or side effects that are replayed at the end of the frame.
    If the arguments contain such values, or such side effects exist, ``fn`` is traced like any function.
    """

    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        objects = trace.objects
        objects.recreated.pin((*args, *kwargs.values()))
        real = [objects.original_of(arg) for arg in args]
        named = {name: objects.original_of(arg) for name, arg in kwargs.items()}
        for given, meant in zip((*args, *kwargs.values()), (*real, *named.values()), strict=True):
            if given is meant and not _is_from_outside(objects, given):
                return _traced(trace, fn, args, kwargs, "with values of the graph")
        # effects of type ``Call`` only print or log
        if any(type(effect) is not Call for effect in diff(objects)):
            detail = "after changes of objects that it may read,"
            return _traced(trace, fn, args, kwargs, detail)
        value = fn(*real, **named)
        return objects.enter(value, pinned(value, f"{label_of(fn)}()"))

    return rule


def _traced(trace: Trace, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any], otherwise: str) -> Any:
    if type(fn) is FunctionType:
        return trace.interp.call_function(fn, args, kwargs)
    detail = f"{label_of(fn)}, whose result is assumed constant, {otherwise}"
    raise graph_break("unsupported-call", detail)


def _is_from_outside(objects: Objects, value: object) -> bool:
    """Whether the call in plain Python gets the same ``value``. ``value`` is not a proxy."""
    if isinstance(value, type):
        return objects.made_at(value) is None
    return type(value) in _PLAIN or objects.is_preexisting(value)


_PLAIN: Final = frozenset({int, float, complex, bool, str, bytes, type(None)})
