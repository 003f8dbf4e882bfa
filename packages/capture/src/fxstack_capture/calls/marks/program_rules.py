"""Rules that a program gives to callables: registrations, settings of torch's compiler, options of a trace.

Rules are keyed by the id of the callable. Registrations hold for all later traces.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, MappingProxyType, MethodType
from typing import Any, Final

from fxstack_capture.breaks import graph_break
from fxstack_capture.options import CaptureOptions
from fxstack_capture.sources import pinned
from fxstack_capture.trace.effect_diff import diff
from fxstack_capture.trace.effects import Call
from fxstack_capture.trace.rule_registry import Rule
from fxstack_capture.trace.state import Args, Kwargs, Objects, Trace

# Limits: the arguments of a reordered call are read when the frame is left, so a tensor or a list that changes between the
# call and the end of the frame is seen changed, as under torch.compile.

# Registrations outlive every compiler, like registrations of torch.library. ``reset`` does not delete them.
_RULES: Final[dict[int, tuple[object, Rule]]] = {}
"""By the id of the callable: the callable and its rule."""


def register(fn: object, rule: Rule) -> None:
    """Register ``rule`` for calls of ``fn``. The functions of ``marking`` call this, for example ``allow_in_graph``."""
    _RULES[id(fn)] = (fn, rule)


def registered_rules() -> Mapping[int, Rule]:
    """Return all registered rules by the id of their callable. The table keeps the callables alive."""
    return MappingProxyType({key: rule for key, (_, rule) in _RULES.items()})


def label_of(fn: object) -> str:
    """Return the name of a callable for messages."""
    return getattr(fn, "__qualname__", None) or repr(fn)


def record_as_node(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Record the call as one node of the graph. ``fn`` runs on fake tensors to compute the results.

    The node takes the fields of frozen dataclasses among the arguments, and makes the instances again.
    """
    leaves: list[Any] = []
    opened = _open(trace, (args, kwargs), leaves)
    if not _has_instances(opened):
        return trace.torch.call(fn, args, kwargs)
    return trace.torch.call(_on_fields(fn, opened), tuple(leaves), {})


@dataclasses.dataclass(frozen=True, slots=True)
class _Opened:
    """A dataclass instance as its class and its fields, which a graph node can hold."""

    cls: type
    """The class of the instance."""
    fields: dict[str, Any]
    """The fields by name, taken apart like the instance."""


def _has_instances(opened: object) -> bool:
    """Whether a structure that ``_open`` returned holds a dataclass instance."""
    parts = (
        opened.values() if isinstance(opened, dict) else opened if isinstance(opened, (list, tuple)) else ()
    )
    return isinstance(opened, _Opened) or any(map(_has_instances, parts))


def _is_frozen(value: object) -> bool:
    """Whether ``value`` is an instance of a frozen dataclass."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and parameters.frozen


def _open(trace: Trace, value: Any, leaves: list[Any]) -> Any:
    """Append the leaves of ``value`` to ``leaves``, and return the structure from which ``_close`` rebuilds ``value``."""
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
    """Rebuild the value that ``_open`` has taken apart."""
    kind = type(opened)
    if kind in (list, tuple):
        return kind([_close(item, leaves) for item in opened])
    if kind is dict:
        return {key: _close(item, leaves) for key, item in opened.items()}
    if kind is not _Opened:
        return next(leaves)
    instance = object.__new__(opened.cls)
    for name, field in opened.fields.items():
        object.__setattr__(instance, name, _close(field, leaves))
    return instance


def _on_fields(fn: Callable[..., Any], opened: Any) -> Callable[..., Any]:
    """Return a function of the leaves that rebuilds the arguments from ``opened`` and calls ``fn``."""

    def on_fields(*leaves: object) -> Any:
        args, kwargs = _close(opened, iter(leaves))
        return fn(*args, **kwargs)

    on_fields.__name__, on_fields.__module__ = getattr(fn, "__name__", "call"), fn.__module__
    return on_fields


def ending_the_graph(reason: str) -> Rule:
    """Return the rule that breaks the graph at the call. The call runs in plain Python between two graphs.

    ``reason`` is the id of a reason in ``breaks``, for example "disallowed".
    """

    def rule(_trace: Trace, fn: object, _args: Args, _kwargs: Kwargs) -> Any:
        raise graph_break(reason, label_of(fn))

    return rule


def traced_as(substitute: object) -> Rule:
    """Return the rule that calls ``substitute`` in place of the callable."""

    def rule(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
        return trace.calls.call(substitute, args, kwargs)

    return rule


def call_once(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Call ``fn`` for real while tracing, and treat its result as a constant: the rule of ``assume_constant_result``.

    A real call does not see values of the graph, nor side effects that are replayed at the end of the frame. If the
    arguments contain such values, or such side effects exist, ``fn`` is traced like any function.
    """
    objects = trace.objects
    objects.recreated.pin((*args, *kwargs.values()))
    real = [objects.original_of(arg) for arg in args]
    named = {name: objects.original_of(arg) for name, arg in kwargs.items()}
    for proxy, original in zip((*args, *kwargs.values()), (*real, *named.values()), strict=True):
        if proxy is original and not _is_from_outside(objects, proxy):
            return _traced(trace, fn, args, kwargs, "with values of the graph")
    # effects of type ``Call`` only print or log
    if any(type(effect) is not Call for effect in diff(objects)):
        return _traced(trace, fn, args, kwargs, "after changes of objects that it may read,")
    value = fn(*real, **named)
    return objects.enter(value, pinned(value, f"{label_of(fn)}()"))


def _traced(trace: Trace, fn: object, args: Args, kwargs: Kwargs, circumstance: str) -> Any:
    """Trace a function whose result is assumed constant, or break the graph if it is no Python function.

    ``circumstance`` is the phrase for the message that says why it cannot be called for real.
    """
    if type(fn) is FunctionType:
        return trace.interp.call_function(fn, args, kwargs)
    detail = f"{label_of(fn)}, whose result is assumed constant, {circumstance}"
    raise graph_break("unsupported-call", detail)


def _is_from_outside(objects: Objects, value: object) -> bool:
    """Whether the call in plain Python gets the same ``value``. ``value`` is not a proxy."""
    if isinstance(value, type):
        return objects.made_at(value) is None
    return type(value) in _PLAIN or objects.is_preexisting(value)


_PLAIN: Final = frozenset({int, float, complex, bool, str, bytes, type(None)})
"""The classes of constants."""


# --- settings of torch's compiler ---------------------------------------------------------------------


def rules_by_torch() -> dict[int, Rule]:
    """Return the rules that the program gave to torch's compiler, by the id of their callable.

    ``torch._dynamo.disallow_in_graph`` and ``torch.compiler.substitute_in_graph`` leave no mark on a callable, since it
    may be a C function. The result is empty while torch's compiler is not loaded.
    """
    rules = dict(_substituted())
    disallowed = getattr(sys.modules.get("torch._dynamo.trace_rules"), "_disallowed_callable_ids", None)
    if disallowed is not None:
        of_torch = {id(value) for value in vars(sys.modules["torch._dynamo.decorators"]).values()}
        rules |= dict.fromkeys((disallowed.function_ids or set()) - of_torch, _disallowed)
    return rules


def _disallowed(_trace: Trace, _fn: object, _args: Args, _kwargs: Kwargs) -> Any:
    """Break the graph at a function that the program gave to ``torch._dynamo.disallow_in_graph``."""
    raise graph_break("disallowed", "a function that the program disallowed")


def _substituted() -> Iterator[tuple[int, Rule]]:
    """Yield the substitutes that the program or a library registered, by the id of the original.

    Torch's own substitutes are made for torch's compiler and are not always exact.
    """
    functions = sys.modules.get("torch._dynamo.variables.functions")
    handlers = {} if functions is None else functions.PolyfilledFunctionVariable._get_polyfill_handlers()
    for fn, wrapper in tuple(handlers.items()):
        substitute = getattr(wrapper, "__torch_dynamo_polyfill__", None)
        module = getattr(substitute, "__module__", None) or ""
        if substitute is not None and not module.startswith("torch."):
            yield id(fn), traced_as(substitute)


# --- options of a trace ------------------------------------------------------------------------------


def with_options(rules: Mapping[int, Rule], options: CaptureOptions) -> dict[int, Rule]:
    """Return ``rules`` with the rules for the options ``reorderable_functions`` and ``ignored_functions``.

    The keys are ids of callables. Each dispatcher calls this when its trace begins.
    """
    reordered = _added(rules, options.reorderable_functions, _call_after_graph)
    return _added(reordered, options.ignored_functions, _ignore)


def _added(rules: Mapping[int, Rule], functions: Iterable[Any], rule: Rule) -> dict[int, Rule]:
    """Return ``rules`` with ``rule`` for each function. For a bound method, the rule holds for the method's object
    alone.
    """
    added = dict(rules)
    for fn in functions:
        if type(fn) is MethodType:
            added[id(fn.__func__)] = _for_object(fn, rule, added.get(id(fn.__func__)))
        else:
            added[id(fn)] = rule
    return added


def _for_object(method: MethodType, chosen: Rule, otherwise: Rule | None) -> Rule:
    """Return a rule that is ``chosen`` for calls with the object of ``method``, and ``otherwise`` for other objects."""

    def rule(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        if args and trace.objects.original_of(args[0]) is method.__self__:
            return chosen(trace, fn, args, kwargs)
        if otherwise is not None:
            return otherwise(trace, fn, args, kwargs)
        return trace.interp.call_function(fn, args, kwargs)

    return rule


def _ignore(_trace: Trace, _fn: object, _args: Args, _kwargs: Kwargs) -> None:
    """Do nothing."""


def _call_after_graph(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> None:
    """Make the call when the graph has run, in order with other side effects."""
    trace.objects.deferred.append(Call(pinned(fn, label_of(fn)), args, dict(kwargs)))
