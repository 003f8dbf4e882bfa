"""Requests for builtin functions and classes, and the table of requests by the kind of step.

A result of None stands for no request: the C code itself runs.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.decisions import policy
from fxstack_capture.calls.operators.plain_objects import is_plain_object
from fxstack_capture.calls.polyfills.attributes import attribute, delete, store
from fxstack_capture.calls.polyfills.operators import binary, item, truth, unary
from fxstack_capture.calls.polyfills.special_methods import advance, calls_back, iterate, special
from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_capture.native.class_flags import is_heap_type, is_immutable
from fxstack_capture.objects.instances import has_finalizer
from fxstack_capture.objects.protocols.descriptors import plan_of
from fxstack_capture.operator_protocol import ARITHMETIC, COMPARISONS, IN_PLACE, UNARY
from fxstack_capture.torch_side.numbers.symbols import symbolic_number
from fxstack_capture.trace.state import Args, Calls, Kwargs, Request

Maker = Callable[..., Request | None]


def _for_callable(calls: Calls, fn: object, args: Args, kwargs: Kwargs) -> Request | None:
    """Return the request for a call of a builtin function, a class, or a bound C method."""
    row = _MAKERS.get(id(fn))
    if row is not None:
        maker, least, most, names = row
        # A call that does not fit gets no request. Calling the function plainly raises CPython's error.
        is_fitting = least <= len(args) <= most and kwargs.keys() <= names
        return maker(calls, *args, **kwargs) if is_fitting else None
    if isinstance(fn, type) and not kwargs.keys() & {"self", "cls"}:
        return _construction(calls, fn, args, kwargs)
    if type(fn) in (types.BuiltinFunctionType, types.MethodWrapperType) and not kwargs:
        return _bound(calls, fn, args)
    return None


def _bound(calls: Calls, fn: Any, args: Args) -> Request | None:
    """Return the request for a bound C method. Only ``list.extend`` with an iterator of the program has one."""
    if fn.__name__ == "extend" and type(fn.__self__) is list and len(args) == 1:
        return (polyfill.extend, (fn.__self__, *args)) if calls_back(calls, args[0]) else None
    return None


def _construction(calls: Calls, cls: type, args: object, kwargs: object) -> Request | None:
    """Return the request for a call of a class with a Python ``__new__``. None for any other class."""
    if type(cls) is not type or has_finalizer(cls) or policy.is_pure_type(cls) or calls.is_leaf(cls):
        return None
    raw = plan_of(calls.objects, cls, "__new__")[0]
    if type(raw) is not staticmethod or type(raw.__func__) is not types.FunctionType:
        return None
    return polyfill.construct, (cls, calls.objects.load_attr(cls, "__new__"), args, kwargs)


def _text(calls: Calls, value: object, names: tuple[str, ...]) -> Request | None:
    """Return the request for ``str`` or ``repr``. ``names`` are the special methods, in order of preference."""
    for name in names:
        inner = calls.objects.classes.lookup(type(value), name)
        if type(inner) is types.FunctionType and special(calls, value, name) is inner:
            return polyfill.text, (name, inner, value)
        if inner is not getattr(object, name):
            return None
    return None


def formatting(calls: Calls, value: object, spec: object = "") -> Request | None:
    """Return the request for ``format(value, spec)``."""
    if symbolic_number(value) or is_immutable(type(value)):
        return None
    method = special(calls, value, "__format__")
    if method is not None:
        return polyfill.format_value, (method, value, spec)
    lookup = calls.objects.classes.lookup
    generic = lookup(type(value), "__format__") is object.__format__
    return _text(calls, value, ("__str__", "__repr__")) if generic and spec == "" else None


def _length(calls: Calls, value: object) -> Request | None:
    """Return the request for ``len(value)``."""
    method = special(calls, value, "__len__")
    return None if method is None else (polyfill.length, (method, value))


def _next(calls: Calls, iterator: object, *default: object) -> Request | None:
    """Return the request for ``next(iterator)``, with or without a default."""
    inner = advance(calls, iterator)
    return (polyfill.next_or, (*inner, *default)) if inner is not None and default else inner


def _getattr(calls: Calls, obj: object, name: object, *default: object) -> Request | None:
    """Return the request for ``getattr(obj, name)``, with or without a default."""
    inner = attribute(calls, obj, name) if type(name) is str else None
    if inner is None or not default:
        return inner
    return polyfill.attribute_or, (obj, name, *default)


def _hasattr(calls: Calls, obj: object, name: object) -> Request | None:
    """Return the request for ``hasattr(obj, name)``."""
    inner = type(name) is str and attribute(calls, obj, name) is not None
    return (polyfill.has_attribute, (obj, name)) if inner else None


def _storing(request_access: Any) -> Maker:
    """Return the maker for ``setattr`` or ``delattr``. ``request_access`` makes the request for the
    statement.
    """

    def make(calls: Calls, obj: object, name: str, *value: Any) -> Request | None:
        inner = request_access(calls, obj, name, *value) if type(name) is str else None
        return None if inner is None else (polyfill.discard_result, inner)

    return make


def _over(fn: object) -> Maker:
    """Return the maker for a function of one iterable.

    The request exists only if iterating calls functions of the program.
    """

    def make(calls: Calls, iterable: object, *args: object, **kwargs: object) -> Request | None:
        args = (*args, *kwargs.values())
        return (fn, (iterable, *args)) if calls_back(calls, iterable) else None

    return make


def _sum(calls: Calls, iterable: Iterable[Any], *args: object, **kwargs: object) -> Request | None:
    """Return the request for ``sum``. It exists only if an item is a plain object, or if iterating calls the
    program.
    """
    values = (iterable, *args, *kwargs.values())
    # Adding such items may call methods of the program.
    has_objects = type(iterable) in (list, tuple) and any(map(is_plain_object, iterable))
    return (polyfill.sum_of, values) if has_objects or calls_back(calls, iterable) else None


def _truths(fn: Callable[..., Any]) -> Maker:
    """Return the maker for ``any`` or ``all``. The request exists only if the truth of an item may break the
    graph.
    """

    def is_object(item: object) -> bool:
        return isinstance(item, torch.Tensor) or is_plain_object(item)

    def make(calls: Calls, iterable: Iterable[Any]) -> Request | None:
        has_objects = (
            any(map(is_object, iterable))
            if type(iterable) in (list, tuple)
            # The items of a generator are not known before it runs, so one may be such an object.
            else isinstance(iterable, types.GeneratorType)
        )
        return (fn, (iterable,)) if has_objects or calls_back(calls, iterable) else None

    return make


def _sorted(calls: Calls, iterable: object, *, key: object = None, reverse: object = False) -> Request | None:
    """Return the request for ``sorted``. It exists only if the key function or iterating calls the program."""
    if not is_python(key) and not calls_back(calls, iterable):
        return None
    return polyfill.sorted_items, (iterable, key, reverse)


def is_python(fn: object) -> bool:
    """Whether a call of ``fn`` runs a Python function."""
    kinds = types.FunctionType, types.MethodType, functools.partial
    return isinstance(fn, kinds) or (not isinstance(fn, type) and is_heap_type(type(fn)))


def _extremum(fn: Callable[..., Any], better: Callable[..., Any]) -> Maker:
    """Return the maker for ``min`` or ``max``."""

    def make(calls: Calls, *args: Any, key: object = None, **empty: Any) -> Request | None:
        items = args[0] if len(args) == 1 else args
        # Comparing such items may call methods of the program.
        compared = type(items) in (list, tuple) and any(map(is_plain_object, items))
        if not (is_python(key) or compared or calls_back(calls, items)):
            return None
        if len(args) > 1 and empty:
            return None
        return polyfill.extremum, (fn, better, items, key, empty)

    return make


def _reduce(calls: Calls, fn: object, iterable: object, *initial: object) -> Request | None:
    """Return the request for ``functools.reduce``. It exists only if the function is one of the program."""
    return (polyfill.reduce_items, (fn, iterable, *initial)) if is_python(fn) else None


def _of_operator(request: Maker, op: object) -> Maker:
    """Return the maker for the function ``op`` of module ``operator``."""
    return lambda calls, *operands: request(calls, op, *operands)


_MANY = 1 << 30
_NONE: frozenset[str] = frozenset()
_TABLE: tuple[tuple[Any, Maker, int, int, frozenset[str]], ...] = (
    (len, _length, 1, 1, _NONE),
    (bool, truth, 1, 1, _NONE),
    (iter, iterate, 1, 1, _NONE),
    (next, _next, 1, 2, _NONE),
    (str, functools.partial(_text, names=("__str__", "__repr__")), 1, 1, _NONE),
    (repr, functools.partial(_text, names=("__repr__",)), 1, 1, _NONE),
    (format, formatting, 1, 2, _NONE),
    (getattr, _getattr, 2, 3, _NONE),
    (hasattr, _hasattr, 2, 2, _NONE),
    (setattr, _storing(store), 3, 3, _NONE),
    (delattr, _storing(delete), 2, 2, _NONE),
    (list, _over(polyfill.items_of), 1, 1, _NONE),
    (tuple, _over(polyfill.tuple_of), 1, 1, _NONE),
    (any, _truths(polyfill.any_of), 1, 1, _NONE),
    (all, _truths(polyfill.all_of), 1, 1, _NONE),
    (sum, _sum, 1, 2, frozenset({"start"})),
    (sorted, _sorted, 1, 1, frozenset({"key", "reverse"})),
    (min, _extremum(min, operator.lt), 1, _MANY, frozenset({"key", "default"})),
    (max, _extremum(max, operator.gt), 1, _MANY, frozenset({"key", "default"})),
    (functools.reduce, _reduce, 2, 3, _NONE),
    *((op, _of_operator(binary, op), 2, 2, _NONE) for op in (*ARITHMETIC, *COMPARISONS, *IN_PLACE)),
    *((op, _of_operator(unary, op), 1, 1, _NONE) for op in UNARY),
)
"""Rows: the function, its maker, the least and largest number of positional arguments, and the keywords."""

_MAKERS = {id(fn): (maker, least, most, names) for fn, maker, least, most, names in _TABLE}
"""Maps the id of a function to its maker, the least and largest number of positional arguments, and the
keywords.
"""


REQUESTS: dict[str, Maker] = {
    "binary": binary,
    "unary": unary,
    "truth": truth,
    "formatting": formatting,
    "item": item,
    "attribute": attribute,
    "store": store,
    "delete": delete,
    "iterate": iterate,
    "advance": advance,
}
"""Maps the kind of an interpreter step to the maker of its requests. ``CallDispatcher.request`` gets the kind
as a word.
"""


def request(calls: Calls, maker: Maker, operands: tuple[Any, ...]) -> Request | None:
    """Return the request that ``maker`` makes for the operands, or None.

    If ``maker`` raises, this is an error of the tracer, not of the program. The graph breaks.
    """
    try:
        return maker(calls, *operands)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise graph_break("tracing-error", text) from error


def of_call(calls: Calls, fn: object, args: Args, kwargs: object) -> Request | None:
    """Return the request that replaces a call of C code. None if the C code can run."""
    return request(calls, _for_callable, (fn, args, kwargs))
