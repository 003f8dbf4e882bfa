"""Iterators and other C objects, through the protocol that pickles them: callable, arguments, state."""

from __future__ import annotations

import types
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from fxstack_capture.emit.builder import attribute, call
from fxstack_capture.emit.errors import CannotRebuildError
from fxstack_capture.emit.rebuild.containers import exprs

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable

    from fxstack_capture.emit.rebuild.rebuilder import Rebuilder
    from fxstack_capture.emit.rebuild.rules import Rule

# C classes of these modules reduce to their parts; others might reduce to names or run other code.
_MODULES = frozenset({"itertools", "decimal", "datetime", "_random", "operator", "_struct"})
_ITERATORS: tuple[type, ...] = (
    type(iter([])),
    type(reversed([])),
    type(iter(())),
    type(iter({})),
    type(iter({}.values())),
    type(iter({}.items())),
    type(reversed({})),
    type(reversed({}.values())),
    type(reversed({}.items())),
    type(iter(set())),
    type(iter(range(0))),
    type(iter(range(1 << 70, (1 << 70) + 1))),
    type(iter("")),
    type(iter(b"")),
    type(iter("\u00e4")),
    type(iter(bytearray())),
    type(iter(int, 1)),
    enumerate,
    zip,
    map,
    filter,
    reversed,
)


def reduce(rebuilder: Rebuilder, obj: Any) -> ast.expr:
    """``callable(*arguments)`` and ``__setstate__(state)``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # itertools, since 3.12
        try:
            reduced = obj.__reduce_ex__(2)
        except TypeError as error:
            raise CannotRebuildError(
                f"an object of type {type(obj).__qualname__} ({error})"
            ) from None
    if not isinstance(reduced, tuple):
        raise CannotRebuildError(f"an object of type {type(obj).__qualname__}")
    function, arguments, state, *more = (*reduced, None, None)[:5]
    if any(part is not None for part in more):
        raise CannotRebuildError(f"an object of type {type(obj).__qualname__}")
    hint = type(obj).__name__
    make = rebuilder.constant(function, getattr(function, "__name__", hint))
    made = rebuilder.assign(call(make, *exprs(rebuilder, arguments)), hint)
    if state is not None:
        rebuilder.builder.run(call(attribute(made, "__setstate__"), rebuilder.expr(state)))
    return made


def _weak_reference(rebuilder: Rebuilder, obj: weakref.ref[Any]) -> ast.expr:
    target = obj()
    if target is None or obj.__callback__ is not None:
        raise CannotRebuildError("a weak reference that is dead or has a callback")
    return rebuilder.assign(
        call(rebuilder.constant(weakref.ref, "ref"), rebuilder.expr(target)), "ref"
    )


def _reducible(cls: type) -> bool:
    return cls.__module__ in _MODULES and not any(
        isinstance(value, types.FunctionType) for value in vars(cls).values()
    )


RULES: dict[type, Rule] = {
    **dict.fromkeys(_ITERATORS, reduce),
    weakref.ref: _weak_reference,
}

FAMILIES: tuple[tuple[Callable[[type], bool], Rule], ...] = ((_reducible, reduce),)
