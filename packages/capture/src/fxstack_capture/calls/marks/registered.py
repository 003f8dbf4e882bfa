"""Rules that programs add for their own callables at any time, keyed by the identity of the callable."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MappingProxyType
from typing import Any, Final

from fxstack_capture.breaks import graph_break
from fxstack_capture.sources import pinned
from fxstack_capture.trace.effect_diff import diff
from fxstack_capture.trace.effects import Call
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
    """Record the call as one node of the graph. ``fn`` runs on fake tensors to compute the results.

    The node takes the fields of frozen dataclasses among the arguments, and makes the instances again.
    """

    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves: list[Any] = []
        opened = _open(trace, (args, kwargs), leaves)
        if not _has_instances(opened):
            return trace.torch.call(fn, args, kwargs)
        return trace.torch.call(_on_fields(fn, opened), tuple(leaves), {})

    return rule


@dataclasses.dataclass(frozen=True, slots=True)
class _Opened:
    """The class of a dataclass instance, and its fields in the place of the instance."""

    cls: type
    fields: dict[str, Any]


def _has_instances(opened: object) -> bool:
    parts = (
        opened.values() if isinstance(opened, dict) else opened if isinstance(opened, (list, tuple)) else ()
    )
    return isinstance(opened, _Opened) or any(map(_has_instances, parts))


def _is_frozen(value: object) -> bool:
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and parameters.frozen


def _open(trace: Trace, value: Any, leaves: list[Any]) -> Any:
    """Append the parts of ``value`` to ``leaves``; return what ``_close`` makes ``value`` of."""
    kind = type(value)
    if kind in (list, tuple):
        return kind([_open(trace, item, leaves) for item in value])
    if kind is dict:
        trace.objects.expand(value)
        return {key: _open(trace, item, leaves) for key, item in value.items()}
    if _is_frozen(value):
        names = [field.name for field in dataclasses.fields(value)]
        values = [trace.objects.load_attr(value, name) for name in names]
        return _Opened(kind, {name: _open(trace, v, leaves) for name, v in zip(names, values, strict=True)})
    leaves.append(value)
    return None


def _close(opened: Any, leaves: Iterator[Any]) -> Any:
    kind = type(opened)
    if kind in (list, tuple):
        return kind([_close(item, leaves) for item in opened])
    if kind is dict:
        return {key: _close(item, leaves) for key, item in opened.items()}
    if kind is not _Opened:
        return next(leaves)
    made = object.__new__(opened.cls)
    for name, field in opened.fields.items():
        object.__setattr__(made, name, _close(field, leaves))
    return made


def _on_fields(fn: Callable[..., Any], opened: Any) -> Callable[..., Any]:
    def on_fields(*leaves: object) -> Any:
        args, kwargs = _close(opened, iter(leaves))
        return fn(*args, **kwargs)

    on_fields.__name__, on_fields.__module__ = getattr(fn, "__name__", "call"), fn.__module__
    return on_fields


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
