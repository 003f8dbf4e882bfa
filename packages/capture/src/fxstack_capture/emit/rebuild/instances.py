"""Rules for instances of classes.

A C base class makes a bare object. Then its contents, dictionary and slots are filled. No code of the class
runs: neither ``__new__`` nor ``__init__`` nor an overridden method of the base.
"""

from __future__ import annotations

import ast
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from fxstack_capture.emit.builder import attribute, call, tuple_of
from fxstack_capture.emit.errors import CannotRebuildError
from fxstack_capture.emit.rebuild.containers import exprs
from fxstack_capture.emit.rebuild.rebuilder import Rebuilder
from fxstack_capture.guards import accesses
from fxstack_capture.native.class_flags import is_heap_type
from fxstack_capture.objects.instances import is_bare, slots
from fxstack_interchange.locations.tracebacks import is_stub

_mro_of = type.__dict__["__mro__"].__get__
_dict_of = type.__dict__["__dict__"].__get__
_FUNC = partial.__dict__["func"]


def rebuild(rebuilder: Rebuilder, obj: Any) -> ast.expr:
    """Rebuild an instance of a class written in Python. Raises CannotRebuildError for a class of this
    package, for a C class, and if a C base class has no rule.
    """
    cls = type(obj)
    if cls.__module__.startswith("fxstack_capture."):
        raise CannotRebuildError(f"an object of the compiler ({cls.__qualname__})")
    base = solid_base(cls)
    # State in C fields is invisible here. A C base class has a filler (``_FILLS``) only if all of its state
    # is known.
    made_in_c = cls is base and base is not object and not issubclass(base, BaseException)
    if made_in_c or (base is object and not is_bare(cls)):
        raise CannotRebuildError(f"an object of type {cls.__module__}.{cls.__qualname__}")
    if issubclass(base, BaseException):
        return _exception(rebuilder, obj, base)
    immutable = _VALUES.get(base)
    if immutable is not None:
        rebuilt = _new(rebuilder, obj, base, rebuilder.expr(immutable(obj)))
        fill_state(rebuilder, obj, rebuilt)
        return rebuilt
    fill_base = _FILLS.get(base)
    if fill_base is None:
        raise CannotRebuildError(
            f"an object of type {cls.__module__}.{cls.__qualname__}, which derives from {base.__qualname__}"
        )
    # ``partial.__new__`` rejects a call without a callable. The filler sets the real state later.
    arguments = [rebuilder.expr(_FUNC.__get__(obj))] if base is partial else []
    rebuilt = _new(rebuilder, obj, base, *arguments)
    fill_base(rebuilder, obj, rebuilt)
    fill_state(rebuilder, obj, rebuilt)
    return rebuilt


def solid_base(cls: type) -> type:
    """Return the class in the MRO whose C code lays out and makes the instances, as ``copyreg`` finds it.

    The ``__new__`` of this class makes a bare instance.
    """
    mro: tuple[Any, ...] = _mro_of(cls)
    for base in mro:
        if not is_heap_type(base):
            break
        new = _dict_of(base).get("__new__")
        if isinstance(new, types.BuiltinFunctionType) and new.__self__ is base:
            break
    else:
        return object
    solid: type = base
    return solid


def _new(rebuilder: Rebuilder, obj: object, base: type, *arguments: ast.expr) -> ast.expr:
    """Emit a bare instance of the class of ``obj`` by the ``__new__`` of the C class ``base``.

    Return the variable that holds the instance. The instance is registered before its contents are built,
    because they may refer to it.
    """
    make = rebuilder.constant(base.__new__, f"new_{base.__name__}")
    cls = rebuilder.expr(type(obj))
    rebuilt = rebuilder.assign(call(make, cls, *arguments), type(obj).__name__)
    rebuilder.remember(obj, rebuilt)
    return rebuilt


def fill_state(rebuilder: Rebuilder, obj: object, rebuilt: ast.expr) -> None:
    """Emit the assignment of the dictionary and slots of ``obj`` to ``rebuilt``, the expression of its bare
    instance.
    """
    namespace = _instance_dict(obj)
    if namespace is not None:
        getter = rebuilder.constant(accesses.instance_dict, "instance_dict")
        state = rebuilder.assign(call(getter, rebuilt, ast.Constant("__dict__")), "dict")
        # The program may hold the dictionary itself, and must then get the dictionary of the new instance.
        rebuilder.remember(namespace, state)
        if namespace:
            keys: list[ast.expr | None] = [rebuilder.expr(key) for key in namespace]
            display = ast.Dict(keys, exprs(rebuilder, namespace.values()))
            rebuilder.builder.run(call(attribute(state, "update"), display))
    for member in slots(type(obj)):
        try:
            value = member.__get__(obj)
        except AttributeError:
            continue
        setter = rebuilder.constant(member.__set__, f"set_{member.__name__}")
        rebuilder.builder.run(call(setter, rebuilt, rebuilder.expr(value)))


def _instance_dict(obj: object) -> dict[str, Any] | None:
    """Return the instance dictionary, read without code of the class. None if the instance has no dictionary."""
    try:
        namespace = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return namespace if isinstance(namespace, dict) else None


# --- bases -----------------------------------------------------------------------------------------


def _method(
    rebuilder: Rebuilder, function: Callable[..., Any], rebuilt: ast.expr, *arguments: ast.expr
) -> None:
    """Emit a call of a C method on the rebuilt object. An override of the method does not run."""
    fn = rebuilder.constant(function, function.__qualname__)
    rebuilder.builder.run(call(fn, rebuilt, *arguments))


def _fill_dict(base: type[dict[Any, Any]]) -> Callable[[Rebuilder, Any, ast.expr], None]:
    """Return a filler: a function that emits the items of a dict subclass by the methods of ``base``."""

    def fill(rebuilder: Rebuilder, obj: Any, rebuilt: ast.expr) -> None:
        """Emit one store for each item."""
        for key, value in base.items(obj):
            _method(rebuilder, base.__setitem__, rebuilt, rebuilder.expr(key), rebuilder.expr(value))

    return fill


def _fill_defaultdict(rebuilder: Rebuilder, obj: object, rebuilt: ast.expr) -> None:
    """Fill the factory, then the items."""
    factory = defaultdict.__dict__["default_factory"]
    _method(rebuilder, factory.__set__, rebuilt, rebuilder.expr(factory.__get__(obj)))
    _fill_dict(dict)(rebuilder, obj, rebuilt)


def _fill_by(iterate: Callable[[Any], Any], method: Callable[..., Any]) -> Callable[..., None]:
    """Return a filler: a function that emits one call of ``method`` with all items. ``iterate`` yields the
    items.
    """

    def fill(rebuilder: Rebuilder, obj: object, rebuilt: ast.expr) -> None:
        """Emit the call, if there are items."""
        items = list(iterate(obj))
        if items:
            _method(rebuilder, method, rebuilt, tuple_of(exprs(rebuilder, items)))

    return fill


def _fill_deque(rebuilder: Rebuilder, obj: Any, rebuilt: ast.expr) -> None:
    """Fill a deque by ``deque.__init__``, because no other call sets ``maxlen``."""
    items = tuple_of(exprs(rebuilder, list(deque.__iter__(obj))))
    limit = deque.__dict__["maxlen"].__get__(obj)
    _method(rebuilder, deque.__init__, rebuilt, items, ast.Constant(limit))


def _fill_partial(rebuilder: Rebuilder, obj: object, rebuilt: ast.expr) -> None:
    """Fill the function and the arguments of a partial by ``__setstate__``, because these attributes are
    read-only.
    """
    members = (partial.__dict__[name].__get__(obj) for name in ("func", "args", "keywords"))
    state = (*members, None)
    _method(rebuilder, partial.__dict__["__setstate__"], rebuilt, rebuilder.expr(state))


def _nothing(_: Rebuilder, __: object, ___: ast.expr) -> None:
    """Emit nothing, because the C base has no contents besides dictionary and slots."""


def _exception(rebuilder: Rebuilder, obj: BaseException, base: type[BaseException]) -> ast.expr:
    """Rebuild an exception.

    ``base.__new__`` and ``base.__init__`` with the same ``args`` fill the C fields.
    """
    arguments = exprs(rebuilder, BaseException.__dict__["args"].__get__(obj))
    rebuilt = _new(rebuilder, obj, base, *arguments)
    _method(rebuilder, base.__init__, rebuilt, *arguments)
    for name in ("__cause__", "__context__", "__suppress_context__"):
        member = BaseException.__dict__[name]
        value = member.__get__(obj)
        if value:
            _method(rebuilder, member.__set__, rebuilt, rebuilder.expr(value))
    traceback = traceback_of(rebuilder, obj, None)
    if traceback is not None:
        _method(rebuilder, BaseException.__dict__["__traceback__"].__set__, rebuilt, traceback)
    fill_state(rebuilder, obj, rebuilt)
    return rebuilt


def traceback_of(rebuilder: Rebuilder, obj: BaseException, before: ast.expr | None) -> ast.expr | None:
    """Return the traceback entries that interpreted code added to an exception.

    They are linked before the entries ``before``, an expression or None. Return None if the traceback is
    empty or has entries of other code.
    """
    entries: list[types.TracebackType] = []
    first = obj.__traceback__
    while first is not None:
        if not is_stub(first.tb_frame):
            return None
        entries.append(first)
        first = first.tb_next
    if not entries:
        return None
    make = rebuilder.constant(types.TracebackType, "TracebackType")
    rebuilt = before
    for entry in reversed(entries):
        frame = rebuilder.constant(entry.tb_frame, f"frame_{entry.tb_frame.f_code.co_name}")
        line = ast.Constant(entry.tb_lineno)
        following = ast.Constant(None) if rebuilt is None else rebuilt
        rebuilt = rebuilder.assign(call(make, following, frame, ast.Constant(-1), line), "traceback")
    return rebuilt


_VALUES: dict[type, Callable[[Any], Any]] = {
    int: int.__index__,
    float: float.__float__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda obj: bytes.__getitem__(obj, slice(None)),
    tuple: lambda obj: tuple.__getitem__(obj, slice(None)),
    frozenset: frozenset.copy,
}

_FILLS: dict[type, Callable[[Rebuilder, Any, ast.expr], None]] = {
    object: _nothing,
    list: _fill_by(list.__iter__, list.extend),
    dict: _fill_dict(dict),
    OrderedDict: _fill_dict(OrderedDict),
    defaultdict: _fill_defaultdict,
    set: _fill_by(set.__iter__, set.update),
    deque: _fill_deque,
    partial: _fill_partial,
    types.SimpleNamespace: _nothing,
}
