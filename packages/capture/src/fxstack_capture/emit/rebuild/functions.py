"""Rules for functions, cells, methods, partials and descriptors that were made during the trace."""

from __future__ import annotations

import ast
import functools
import types
from typing import Any

from fxstack_capture.calls.callbacks import Reader, Route
from fxstack_capture.emit.builder import attribute, call, tuple_of
from fxstack_capture.emit.errors import CannotRebuildError
from fxstack_capture.emit.rebuild.containers import exprs, of_attributes, set_attr, set_attributes, set_item
from fxstack_capture.emit.rebuild.rebuilder import Rebuilder, Rule
from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_capture.interpreter.generators import TraceGenerator
from fxstack_capture.sources import Globals


def namespace(rebuilder: Rebuilder, names: dict[str, Any]) -> ast.expr:
    """Return an expression for the globals of a function. ``names`` are the original globals or their proxy."""
    real = rebuilder.trace.objects.original_of(names)
    if real is rebuilder.loads.frame.function.__globals__:
        return rebuilder.loads.expr(Globals())
    return rebuilder.constant(real, "globals")


def _function(rebuilder: Rebuilder, fn: types.FunctionType) -> ast.expr:
    """Rebuild a function made in the trace. Raises CannotRebuildError for a function of this package that is
    no polyfill.
    """
    if fn.__globals__ is vars(polyfill):
        return rebuilder.constant(fn, fn.__name__)
    if str(fn.__globals__.get("__name__")).startswith("fxstack_capture."):
        raise CannotRebuildError(f"a function of the compiler ({fn.__qualname__})")
    defaults, keyword_defaults, closure = rebuilder.trace.objects.function_parts(fn)
    make = rebuilder.constant(types.FunctionType, "FunctionType")
    arguments = [
        rebuilder.constant(fn.__code__, f"code_{fn.__name__}"),
        namespace(rebuilder, fn.__globals__),
        ast.Constant(fn.__name__),
        tuple_of(exprs(rebuilder, defaults)) if defaults else ast.Constant(None),
        tuple_of(exprs(rebuilder, closure)) if closure else ast.Constant(None),
    ]
    rebuilt = rebuilder.assign(call(make, *arguments), fn.__name__)
    rebuilder.remember(fn, rebuilt)
    if keyword_defaults:
        set_attr(rebuilder, rebuilt, "__kwdefaults__", rebuilder.expr(keyword_defaults))
    if fn.__qualname__ != fn.__code__.co_qualname:
        set_attr(rebuilder, rebuilt, "__qualname__", ast.Constant(fn.__qualname__))
    _function_extras(rebuilder, fn, rebuilt)
    return rebuilt


def _function_extras(rebuilder: Rebuilder, fn: types.FunctionType, rebuilt: ast.expr) -> None:
    """Emit the attributes of a function that its constructor does not set."""
    docstring = fn.__code__.co_consts[0] if fn.__code__.co_consts else None
    if fn.__doc__ is not (docstring if isinstance(docstring, str) else None):
        set_attr(rebuilder, rebuilt, "__doc__", rebuilder.expr(fn.__doc__))
    if fn.__module__ != fn.__globals__.get("__name__"):
        set_attr(rebuilder, rebuilt, "__module__", rebuilder.expr(fn.__module__))
    # since Python 3.14: the function that computes the annotations on demand
    annotate = getattr(fn, "__annotate__", None)
    if annotate is not None:
        set_attr(rebuilder, rebuilt, "__annotate__", rebuilder.expr(annotate))
    elif fn.__annotations__:
        set_attr(rebuilder, rebuilt, "__annotations__", rebuilder.expr(fn.__annotations__))
    if fn.__dict__:
        extra = rebuilder.assign(attribute(rebuilt, "__dict__"), "dict")
        for name, value in fn.__dict__.items():
            set_item(rebuilder, extra, ast.Constant(name), rebuilder.expr(value))


def _cell(rebuilder: Rebuilder, cell: types.CellType) -> ast.expr:
    """Rebuild a cell. If the content of the cell refers back to the cell, the content is stored later."""
    make = rebuilder.constant(types.CellType, "CellType")
    try:
        content = rebuilder.trace.objects.load_cell(cell)
    except ValueError:
        return rebuilder.assign(call(make), "cell")
    return rebuilder.mutable(
        cell,
        lambda: call(make, rebuilder.expr(content)),
        lambda: call(make),
        lambda rebuilt: set_attr(rebuilder, rebuilt, "cell_contents", rebuilder.expr(content)),
    )


def _method(rebuilder: Rebuilder, obj: types.MethodType) -> ast.expr:
    """Rebuild a bound method. A method of a trace generator becomes the same-named method of the real
    generator.
    """
    if type(obj.__self__) is TraceGenerator:
        # A trace generator and a real generator have different classes, so their methods differ.
        receiver = rebuilder.expr(obj.__self__)
        return rebuilder.assign(attribute(receiver, obj.__func__.__name__), "method")
    make = rebuilder.constant(types.MethodType, "MethodType")
    function, receiver = rebuilder.expr(obj.__func__), rebuilder.expr(obj.__self__)
    return rebuilder.assign(call(make, function, receiver), "method")


def _builtin_method(rebuilder: Rebuilder, obj: Any) -> ast.expr:
    """Rebuild a C function, or a bound method of a C class. Raises CannotRebuildError if no class has its
    descriptor.
    """
    receiver = obj.__self__
    if receiver is None or isinstance(receiver, (types.ModuleType, type)):
        return rebuilder.constant(obj, obj.__name__)
    for base in type(receiver).__mro__:
        method = base.__dict__.get(obj.__name__)
        if isinstance(method, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            bind = rebuilder.constant(method.__get__, f"bind_{obj.__name__}")
            return rebuilder.assign(call(bind, rebuilder.expr(receiver)), obj.__name__)
    raise CannotRebuildError(f"the bound method {obj!r}")


def _route(rebuilder: Rebuilder, obj: Route) -> ast.expr:
    """Rebuild a call route as the function that the program sees. A route exists only in the trace."""
    return rebuilder.expr(obj.fn)


def _reader(rebuilder: Rebuilder, obj: Reader) -> ast.expr:
    """Rebuild a ``Reader`` as the iterator that it reads. A ``Reader`` represents a consumed iterator in the
    trace.
    """
    return rebuilder.expr(obj.iterator)


def _partial(rebuilder: Rebuilder, obj: functools.partial[Any]) -> ast.expr:
    """Rebuild a ``functools.partial``, with the attributes of the instance."""
    make = rebuilder.constant(functools.partial, "partial")
    function, arguments = rebuilder.expr(obj.func), exprs(rebuilder, obj.args)
    keywords = [ast.keyword(name, rebuilder.expr(value)) for name, value in obj.keywords.items()]
    rebuilt = rebuilder.assign(ast.Call(make, [function, *arguments], keywords), "partial")
    rebuilder.remember(obj, rebuilt)  # the attributes may lead back to ``obj``
    set_attributes(rebuilder, obj, rebuilt)
    return rebuilt


RULES: dict[type, Rule] = {
    types.FunctionType: _function,
    types.CellType: _cell,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin_method,
    types.MethodWrapperType: _builtin_method,
    functools.partial: _partial,
    Route: _route,
    Reader: _reader,
    property: of_attributes(property, "fget", "fset", "fdel", "__doc__"),
    staticmethod: of_attributes(staticmethod, "__func__"),
    classmethod: of_attributes(classmethod, "__func__"),
}
