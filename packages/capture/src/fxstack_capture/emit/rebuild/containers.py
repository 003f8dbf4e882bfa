"""Built-in containers and the small immutable ones."""

from __future__ import annotations

import ast
import gc
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from fxstack_capture.emit.builder import attribute, call, tuple_of
from fxstack_capture.emit.rebuild.protocol import RebuilderProtocol
from fxstack_capture.emit.rebuild.rules import Rule


def exprs(rebuilder: RebuilderProtocol, values: Iterable[Any]) -> list[ast.expr]:
    return [rebuilder.expr(value) for value in values]


def set_item(rebuilder: RebuilderProtocol, container: ast.expr, key: ast.expr, value: ast.expr) -> None:
    target = ast.Subscript(container, key, ast.Store())
    rebuilder.builder.body.append(ast.Assign([target], value))


def set_attr(rebuilder: RebuilderProtocol, obj: ast.expr, name: str, value: ast.expr) -> None:
    target = ast.Attribute(obj, name, ast.Store())
    rebuilder.builder.body.append(ast.Assign([target], value))


def set_attributes(rebuilder: RebuilderProtocol, obj: object, made: ast.expr) -> None:
    """Put the attributes of ``obj`` on what it is rebuilt as."""
    for name, value in vars(obj).items():
        set_attr(rebuilder, made, name, rebuilder.expr(value))


def _list(rebuilder: RebuilderProtocol, obj: list[Any]) -> ast.expr:
    return rebuilder.mutable(
        obj,
        lambda: ast.List(exprs(rebuilder, obj), ast.Load()),
        lambda: ast.List([], ast.Load()),
        lambda made: rebuilder.builder.run(call(attribute(made, "extend"), tuple_of(exprs(rebuilder, obj)))),
    )


def _tuple(rebuilder: RebuilderProtocol, obj: tuple[Any, ...]) -> ast.expr:
    return rebuilder.assign(tuple_of(exprs(rebuilder, obj)), "tuple")


def _display(rebuilder: RebuilderProtocol, obj: dict[Any, Any]) -> ast.expr:
    keys: list[ast.expr | None] = []
    values = []
    for key, value in dict.items(obj):
        keys.append(rebuilder.expr(key))
        values.append(rebuilder.expr(value))
    return ast.Dict(keys, values)


def _dict(rebuilder: RebuilderProtocol, obj: dict[Any, Any]) -> ast.expr:
    def fill(made: ast.expr) -> None:
        for key, value in obj.items():
            set_item(rebuilder, made, rebuilder.expr(key), rebuilder.expr(value))

    return rebuilder.mutable(obj, lambda: _display(rebuilder, obj), lambda: ast.Dict([], []), fill)


def _set(rebuilder: RebuilderProtocol, obj: set[Any]) -> ast.expr:
    make = rebuilder.constant(set, "set")
    return rebuilder.mutable(
        obj,
        lambda: call(make, tuple_of(exprs(rebuilder, obj))),
        lambda: call(make),
        lambda made: rebuilder.builder.run(call(attribute(made, "update"), tuple_of(exprs(rebuilder, obj)))),
    )


def _deque(rebuilder: RebuilderProtocol, obj: deque[Any]) -> ast.expr:
    make, limit = rebuilder.constant(deque, "deque"), ast.Constant(obj.maxlen)
    return rebuilder.mutable(
        obj,
        lambda: call(make, tuple_of(exprs(rebuilder, obj)), limit),
        lambda: call(make, tuple_of(()), limit),
        lambda made: rebuilder.builder.run(call(attribute(made, "extend"), tuple_of(exprs(rebuilder, obj)))),
    )


def _ordered_dict(rebuilder: RebuilderProtocol, obj: OrderedDict[Any, Any]) -> ast.expr:
    make = rebuilder.constant(OrderedDict, "OrderedDict")

    def fill(made: ast.expr) -> None:
        for key, value in OrderedDict.items(obj):
            set_item(rebuilder, made, rebuilder.expr(key), rebuilder.expr(value))

    def display() -> ast.expr:
        pairs = [(rebuilder.expr(k), rebuilder.expr(v)) for k, v in OrderedDict.items(obj)]
        return call(make, tuple_of(tuple_of(pair) for pair in pairs))

    made = rebuilder.mutable(obj, display, lambda: call(make), fill)
    rebuilder.remember(obj, made)  # its attributes may lead back to it
    set_attributes(rebuilder, obj, made)
    return made


def _defaultdict(rebuilder: RebuilderProtocol, obj: defaultdict[Any, Any]) -> ast.expr:
    make = rebuilder.constant(defaultdict, "defaultdict")
    factory = rebuilder.expr(obj.default_factory)

    def fill(made: ast.expr) -> None:
        for key, value in dict.items(obj):
            set_item(rebuilder, made, rebuilder.expr(key), rebuilder.expr(value))

    return rebuilder.mutable(
        obj, lambda: call(make, factory, _display(rebuilder, obj)), lambda: call(make, factory), fill
    )


def _called(kind: Callable[..., Any], *attributes: str) -> Rule:
    """``kind(obj.a, obj.b, ...)``."""

    def rule(rebuilder: RebuilderProtocol, obj: object) -> ast.expr:
        values = exprs(rebuilder, (getattr(obj, name) for name in attributes))
        return rebuilder.assign(call(rebuilder.constant(kind, kind.__name__), *values), kind.__name__)

    return rule


def _of_items(kind: Callable[..., Any]) -> Rule:
    """``kind((item, item, ...))``."""

    def rule(rebuilder: RebuilderProtocol, obj: Any) -> ast.expr:
        items = tuple_of(exprs(rebuilder, obj))
        return rebuilder.assign(call(rebuilder.constant(kind, kind.__name__), items), kind.__name__)

    return rule


def is_struct_sequence(cls: type) -> bool:
    """A tuple with field names that C code made (``torch.return_types``, ``time.struct_time``)."""
    return cls.__mro__[1:2] == (tuple,) and "n_sequence_fields" in vars(cls)


def _struct_sequence(rebuilder: RebuilderProtocol, obj: Any) -> ast.expr:
    """The items, and the fields that are no items, as its own ``__reduce__`` says."""
    cls, (items, rest) = obj.__reduce__()
    make = rebuilder.constant(cls, cls.__name__)
    values = [tuple_of(exprs(rebuilder, items))]
    if rest:
        values.append(rebuilder.expr(rest))
    return rebuilder.assign(call(make, *values), cls.__name__)


def _view(method: Callable[..., Any]) -> Rule:
    """A dict view: of the very dict it looks at, which only the garbage collector can name."""

    def rule(rebuilder: RebuilderProtocol, obj: object) -> ast.expr:
        (mapping,) = gc.get_referents(obj)
        made = call(rebuilder.constant(method, f"dict_{method.__name__}"), rebuilder.expr(mapping))
        return rebuilder.assign(made, method.__name__)

    return rule


def _bytearray(rebuilder: RebuilderProtocol, obj: bytearray) -> ast.expr:
    make = rebuilder.constant(bytearray, "bytearray")
    return rebuilder.assign(call(make, ast.Constant(bytes(obj))), "bytearray")


def _namespace(rebuilder: RebuilderProtocol, obj: types.SimpleNamespace) -> ast.expr:
    make = rebuilder.constant(types.SimpleNamespace, "SimpleNamespace")

    def fill(made: ast.expr) -> None:
        set_attributes(rebuilder, obj, made)

    def display() -> ast.expr:
        pairs = [ast.keyword(name, rebuilder.expr(value)) for name, value in vars(obj).items()]
        return ast.Call(make, [], pairs)

    return rebuilder.mutable(obj, display, lambda: call(make), fill)


def _proxy(rebuilder: RebuilderProtocol, obj: types.MappingProxyType[Any, Any]) -> ast.expr:
    (mapping,) = gc.get_referents(obj)
    make = rebuilder.constant(types.MappingProxyType, "MappingProxyType")
    return rebuilder.assign(call(make, rebuilder.expr(mapping)), "mappingproxy")


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
    slice: _called(slice, "start", "stop", "step"),
    range: _called(range, "start", "stop", "step"),
    bytearray: _bytearray,
    type({}.keys()): _view(dict.keys),
    type({}.values()): _view(dict.values),
    type({}.items()): _view(dict.items),
    types.MappingProxyType: _proxy,
    types.SimpleNamespace: _namespace,
}

FAMILIES: tuple[tuple[Callable[[type], bool], Rule], ...] = ((is_struct_sequence, _struct_sequence),)
