"""Rules for builtin containers and small immutable objects."""

from __future__ import annotations

import ast
import gc
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from fxstack_capture.emit.builder import attribute, call, tuple_of
from fxstack_capture.emit.rebuild.rebuilder import Rebuilder, Rule


def exprs(rebuilder: Rebuilder, values: Iterable[Any]) -> list[ast.expr]:
    """Return the expressions of the rebuilt values."""
    return [rebuilder.expr(value) for value in values]


def set_item(rebuilder: Rebuilder, container: ast.expr, key: ast.expr, value: ast.expr) -> None:
    """Emit ``container[key] = value``."""
    target = ast.Subscript(container, key, ast.Store())
    rebuilder.builder.body.append(ast.Assign([target], value))


def set_attr(rebuilder: Rebuilder, obj: ast.expr, name: str, value: ast.expr) -> None:
    """Emit ``obj.name = value``."""
    target = ast.Attribute(obj, name, ast.Store())
    rebuilder.builder.body.append(ast.Assign([target], value))


def set_attributes(rebuilder: Rebuilder, obj: object, rebuilt: ast.expr) -> None:
    """Emit the assignments that give ``rebuilt`` the attributes in ``vars(obj)``. ``rebuilt`` is the
    expression of ``obj``.
    """
    for name, value in vars(obj).items():
        set_attr(rebuilder, rebuilt, name, rebuilder.expr(value))


def called(rebuilder: Rebuilder, function: Any, *arguments: ast.expr, hint: str = "") -> ast.expr:
    """Emit the call of ``function`` with ``arguments``, and return the variable that holds the result."""
    name = function.__name__
    return rebuilder.assign(call(rebuilder.constant(function, name), *arguments), hint or name)


def _rebuild_by(
    rebuilder: Rebuilder, obj: Any, make: Callable[[list[ast.expr]], ast.expr], method: str
) -> ast.expr:
    """Rebuild a container from its items.

    ``make`` takes the expressions of the items and returns the expression of the container. ``method`` is the
    name of the method that adds the items to an empty container.
    """

    def fill(rebuilt: ast.expr) -> None:
        """Emit the call of ``method`` with all items."""
        rebuilder.builder.run(call(attribute(rebuilt, method), tuple_of(exprs(rebuilder, obj))))

    return rebuilder.mutable(obj, lambda: make(exprs(rebuilder, obj)), lambda: make([]), fill)


def _list(rebuilder: Rebuilder, obj: list[Any]) -> ast.expr:
    return _rebuild_by(rebuilder, obj, lambda items: ast.List(items, ast.Load()), "extend")


def _tuple(rebuilder: Rebuilder, obj: tuple[Any, ...]) -> ast.expr:
    """Rebuild a tuple. A tuple that contains itself through a mutable object raises CycleError."""
    return rebuilder.assign(tuple_of(exprs(rebuilder, obj)), "tuple")


def _display(rebuilder: Rebuilder, obj: dict[Any, Any]) -> ast.expr:
    """Return a dictionary display with all keys and values."""
    keys: list[ast.expr | None] = []
    values = []
    for key, value in dict.items(obj):
        keys.append(rebuilder.expr(key))
        values.append(rebuilder.expr(value))
    return ast.Dict(keys, values)


def _fill_items(rebuilder: Rebuilder, items: Iterable[tuple[Any, Any]]) -> Callable[[ast.expr], None]:
    """Return a function that emits the assignments of ``items`` to a dictionary. The dictionary was made
    empty.
    """

    def fill(rebuilt: ast.expr) -> None:
        """Emit the assignments."""
        for key, value in items:
            set_item(rebuilder, rebuilt, rebuilder.expr(key), rebuilder.expr(value))

    return fill


def _dict(rebuilder: Rebuilder, obj: dict[Any, Any]) -> ast.expr:
    """Rebuild a dictionary, by a display or by item assignments."""
    fill = _fill_items(rebuilder, obj.items())
    return rebuilder.mutable(obj, lambda: _display(rebuilder, obj), lambda: ast.Dict([], []), fill)


def _set(rebuilder: Rebuilder, obj: set[Any]) -> ast.expr:
    """Rebuild a set. The items are added in the order in which the set of the trace yields them."""
    make = rebuilder.constant(set, "set")
    return _rebuild_by(rebuilder, obj, lambda items: call(make, tuple_of(items)), "update")


def _deque(rebuilder: Rebuilder, obj: deque[Any]) -> ast.expr:
    """Rebuild a deque with its ``maxlen``."""
    make, limit = rebuilder.constant(deque, "deque"), ast.Constant(obj.maxlen)
    return _rebuild_by(rebuilder, obj, lambda items: call(make, tuple_of(items), limit), "extend")


def _ordered_dict(rebuilder: Rebuilder, obj: OrderedDict[Any, Any]) -> ast.expr:
    """Rebuild an OrderedDict, with the attributes of the instance."""
    make = rebuilder.constant(OrderedDict, "OrderedDict")

    def display() -> ast.expr:
        """Return the call of ``OrderedDict`` with all items."""
        pairs = [(rebuilder.expr(k), rebuilder.expr(v)) for k, v in OrderedDict.items(obj)]
        return call(make, tuple_of(tuple_of(pair) for pair in pairs))

    fill = _fill_items(rebuilder, OrderedDict.items(obj))
    rebuilt = rebuilder.mutable(obj, display, lambda: call(make), fill)
    rebuilder.remember(obj, rebuilt)  # the attributes may lead back to ``obj``
    set_attributes(rebuilder, obj, rebuilt)
    return rebuilt


def _defaultdict(rebuilder: Rebuilder, obj: defaultdict[Any, Any]) -> ast.expr:
    """Rebuild a defaultdict with its factory."""
    make = rebuilder.constant(defaultdict, "defaultdict")
    factory = rebuilder.expr(obj.default_factory)
    fill = _fill_items(rebuilder, dict.items(obj))
    return rebuilder.mutable(
        obj, lambda: call(make, factory, _display(rebuilder, obj)), lambda: call(make, factory), fill
    )


def of_attributes(kind: Callable[..., Any], *attributes: str) -> Rule:
    """Return a rule that rebuilds ``obj`` by ``kind(obj.a, obj.b, ...)``, where ``attributes`` are the names."""

    def rule(rebuilder: Rebuilder, obj: object) -> ast.expr:
        """Rebuild an object by its attributes."""
        values = exprs(rebuilder, (getattr(obj, name) for name in attributes))
        return called(rebuilder, kind, *values)

    return rule


def _of_items(kind: Callable[..., Any]) -> Rule:
    """Return a rule that rebuilds ``obj`` by ``kind((item, item, ...))``."""

    def rule(rebuilder: Rebuilder, obj: Any) -> ast.expr:
        """Rebuild an object by its items."""
        return called(rebuilder, kind, tuple_of(exprs(rebuilder, obj)))

    return rule


def is_struct_sequence(cls: type) -> bool:
    """Return whether ``cls`` is a tuple class with field names that C code made, such as ``time.struct_time``."""
    return cls.__mro__[1:2] == (tuple,) and "n_sequence_fields" in vars(cls)


def _struct_sequence(rebuilder: Rebuilder, obj: Any) -> ast.expr:
    """Rebuild a struct sequence from ``__reduce__``: its items, and the fields that are not items."""
    cls, (items, rest) = obj.__reduce__()
    values = [tuple_of(exprs(rebuilder, items))]
    if rest:
        values.append(rebuilder.expr(rest))
    return called(rebuilder, cls, *values)


def _view(method: Callable[..., Any]) -> Rule:
    """Return a rule for a view of a dictionary. ``method`` makes the view, for example ``dict.keys``."""

    def rule(rebuilder: Rebuilder, obj: object) -> ast.expr:
        """Rebuild a view by a call of ``method`` on its rebuilt dictionary. ``gc.get_referents`` finds the
        dictionary.
        """
        # The attribute ``mapping`` of a view is a read-only proxy, not the dictionary itself.
        (mapping,) = gc.get_referents(obj)
        rebuilt = call(rebuilder.constant(method, f"dict_{method.__name__}"), rebuilder.expr(mapping))
        return rebuilder.assign(rebuilt, method.__name__)

    return rule


def _bytearray(rebuilder: Rebuilder, obj: bytearray) -> ast.expr:
    """Rebuild a bytearray from constant bytes."""
    return called(rebuilder, bytearray, ast.Constant(bytes(obj)))


def _namespace(rebuilder: Rebuilder, obj: types.SimpleNamespace) -> ast.expr:
    """Rebuild a SimpleNamespace, by keywords or by attribute assignments."""
    make = rebuilder.constant(types.SimpleNamespace, "SimpleNamespace")

    def fill(rebuilt: ast.expr) -> None:
        """Emit the assignments of the attributes."""
        set_attributes(rebuilder, obj, rebuilt)

    def display() -> ast.expr:
        """Return the call of ``SimpleNamespace`` with all attributes."""
        pairs = [ast.keyword(name, rebuilder.expr(value)) for name, value in vars(obj).items()]
        return ast.Call(make, [], pairs)

    return rebuilder.mutable(obj, display, lambda: call(make), fill)


def _proxy(rebuilder: Rebuilder, obj: types.MappingProxyType[Any, Any]) -> ast.expr:
    """Rebuild a mapping proxy over its rebuilt dictionary. ``gc.get_referents`` finds the dictionary."""
    (mapping,) = gc.get_referents(obj)
    return called(rebuilder, types.MappingProxyType, rebuilder.expr(mapping))


RULES: dict[type, Rule] = {
    list: _list,
    tuple: _tuple,
    dict: _dict,
    set: _set,
    deque: _deque,
    OrderedDict: _ordered_dict,
    defaultdict: _defaultdict,
    frozenset: _of_items(frozenset),
    torch.Size: _of_items(torch.Size),
    slice: of_attributes(slice, "start", "stop", "step"),
    range: of_attributes(range, "start", "stop", "step"),
    bytearray: _bytearray,
    type({}.keys()): _view(dict.keys),
    type({}.values()): _view(dict.values),
    type({}.items()): _view(dict.items),
    types.MappingProxyType: _proxy,
    types.SimpleNamespace: _namespace,
}

FAMILIES: tuple[tuple[Callable[[type], bool], Rule], ...] = ((is_struct_sequence, _struct_sequence),)
