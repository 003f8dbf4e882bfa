"""Rules of builtin functions whose arguments may be tensors, symbolic numbers or lazy proxies."""

from __future__ import annotations

import collections
import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.callers import calls_program, plainly
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.operators import protocol as operators
from fxstack_capture.calls.operators import tensor_methods
from fxstack_capture.calls.rules import RULES
from fxstack_capture.calls.rules.builtins.listed_names import listed_names
from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_capture.interpreter.frame_rules import FRAME_RULES, super_arguments
from fxstack_capture.native.class_flags import is_immutable
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.objects.kinds import append_only_lists
from fxstack_capture.shapes.symbolic.exact_comparisons import as_float
from fxstack_capture.trace.constants import PLAIN_TYPES
from fxstack_capture.trace.rule_registry import run_plainly
from fxstack_capture.trace.state import Args, Kwargs, Trace

RULES.add(run_plainly, callable)


@RULES.rule(id)
def _id(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the id of an object. If the id leaves the graph, it is computed again from the real object."""
    number = plainly(id, args, kwargs)
    return trace.objects.addresses.number(id, args[0], number)


@RULES.rule(hash)
def _hash(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return the hash of an object. If the hash is an address and leaves the graph, it is computed again."""
    if len(args) == 1 and isinstance(args[0], torch.Tensor):
        method = tensor_methods.method(trace.calls, args[0], "__hash__")
        if method is not None:
            return trace.calls.call(method, args, {})
        return _tensor_hash(trace, fn, args, kwargs)
    number = run(trace, fn, args, kwargs)
    if getattr(type(args[0]), "__hash__", None) is not object.__hash__:
        return number
    # ``object.__hash__`` computes the number from the address of the object.
    return trace.objects.addresses.number(hash, args[0], number)


@RULES.rule(torch.Tensor.__hash__)
def _tensor_hash(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the hash of a tensor. It is the id of the tensor, so the rule of ``id`` applies."""
    return trace.objects.addresses.number(hash, args[0], id(args[0]))


# --- attributes ----------------------------------------------------------------------------------


def _name_argument(value: object, prefix: str) -> str:
    """Return ``value``, the name of an attribute. If it is not a string, raise CPython's TypeError.

    ``prefix`` is the beginning of the error text.
    """
    if not isinstance(value, str):
        raise TypeError(f"{prefix}attribute name must be string, not '{type(value).__name__}'")
    return value


@RULES.unpacked(getattr, count=(2, 3))
def _getattr(trace: Trace, obj: object, name: object, *default: object) -> Any:
    """Return an attribute of a proxy. If it has none, return the default."""
    attribute = _name_argument(name, "")
    if not default:
        return trace.objects.load_attr(obj, attribute)
    try:
        return trace.objects.load_attr(obj, attribute)
    except AttributeError as missing:
        trace.interp.dealt_with(missing)
        return default[0]


@RULES.unpacked(hasattr, count=(2, 2))
def _hasattr(trace: Trace, obj: object, name: object) -> bool:
    """Return whether a proxy has an attribute."""
    try:
        trace.objects.load_attr(obj, _name_argument(name, ""))
    except AttributeError as missing:
        trace.interp.dealt_with(missing)
        return False
    return True


@RULES.unpacked(setattr, count=(3, 3))
def _setattr(trace: Trace, obj: object, name: object, value: object) -> None:
    """Set an attribute of a proxy."""
    trace.objects.store_attr(obj, _name_argument(name, ""), value)


@RULES.unpacked(delattr, count=(2, 2))
def _delattr(trace: Trace, obj: object, name: object) -> None:
    """Delete an attribute of a proxy."""
    trace.objects.delete_attr(obj, _name_argument(name, ""))


# --- truth and size ------------------------------------------------------------------------------


@RULES.unpacked(bool, count=(1, 1))
def _bool(trace: Trace, value: object) -> Any:
    """Return the truth of a value, or a symbolic truth that the graph computes."""
    try:
        return trace.interp.truth_of_result(value)
    except GraphBreak:
        # Unlike a branch, ``bool`` needs no known truth, because its result may stay a symbol.
        truth_value = trace.torch.open_truth(value)
        if truth_value is None:
            raise
        return truth_value


@RULES.unpacked(len, count=(1, 1))
def _len(trace: Trace, value: Any) -> Any:
    """Return the length of a value. It is symbolic for a tensor with a symbolic size."""
    state = trace.objects.lazy.get(id(value))
    if state is not None:
        return state.length()
    if type(value) in _CONTAINERS:
        is_append_only = id(value) in trace.objects.append_only
        return append_only_lists.length(trace.objects, value) if is_append_only else len(value)
    if isinstance(value, torch.Tensor):
        method = tensor_methods.method(trace.calls, value, "__len__")
        return trace.calls.call(method or torch.Tensor.__len__, (value,), {})
    return operators.length(trace.calls, value)


_CONTAINERS = frozenset({list, tuple, torch.Size, dict, set, frozenset, str, bytes, range})
"""The builtin containers. C code reads their length and items."""


@RULES.rule(iter)
def _iter(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return an iterator over objects of the trace."""
    if len(args) == 1 and not kwargs:
        return trace.calls.iterate(args[0])
    return run(trace, fn, args, kwargs)


@RULES.unpacked(next, count=(1, 2))
def _next(trace: Trace, iterator: object, *default: object) -> Any:
    """Return the next item of an iterator, or the default at its end."""
    try:
        return trace.calls.next(iterator)
    except StopIteration as end:
        if default:
            trace.interp.dealt_with(end)
            return default[0]
        raise


@RULES.unpacked(operator.setitem, count=(3, 3))
@calls_program
def _setitem(trace: Trace, target: Any, key: object, value: object) -> Any:
    """Store an item in a container, a tensor or an array."""
    args = target, key, value
    if type(target) is list and type(key) is int:
        return operator.setitem(target, key, value)
    if type(target) is dict:
        return trace.calls.call(dict.__setitem__, args, {})
    if type(target) is Array:
        return trace.torch.arrays.call(operator.setitem, args, {})
    if isinstance(target, torch.Tensor):
        method = tensor_methods.method(trace.calls, target, "__setitem__")
        if method is None:
            return trace.torch.call(operator.setitem, args, {})
        return trace.calls.call(method, args, {})
    return run(trace, operator.setitem, args, {})


@RULES.rule(operator.delitem)
def _delitem(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Delete an item of a container."""
    if args and type(args[0]) is dict:
        return trace.calls.call(dict.__delitem__, args, kwargs)
    return run(trace, fn, args, kwargs)


# --- conversions of tensors and symbolic numbers -------------------------------------------------


@RULES.rule(int, float, complex)
def _convert(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Convert a value to a number. A symbolic number stays symbolic. Break the graph for a tensor whose class
    defines the conversion.
    """
    if len(args) == 1 and not kwargs:
        value = args[0]
        if isinstance(value, torch.Tensor):
            name = f"__{fn.__name__}__"
            if tensor_methods.method(trace.calls, value, name) is not None:
                raise graph_break("unsupported-call", f"{fn.__name__}() of {type(value)}")
            return trace.torch.call(getattr(torch.Tensor, name), args, {})
        if type(value) is Scalar and fn is not complex:
            value = value.item()
        if type(value) in PLAIN_TYPES:
            return _SYMBOLIC_CONVERSIONS[fn](value)
    return run(trace, fn, args, kwargs)


_SYMBOLIC_CONVERSIONS: dict[Any, Any] = {int: torch.sym_int, float: as_float, complex: complex}


# --- frames --------------------------------------------------------------------------------------


def _read_frame(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Read the calling frame. With an argument, ``vars`` and ``dir`` read the object instead."""
    if args and fn is vars:
        return _vars(trace, args, kwargs)
    if args and fn is dir:
        return plainly(fn, args, kwargs) if len(args) != 1 or kwargs else listed_names(trace, args[0])
    return FRAME_RULES[fn](trace.interp, args, kwargs)  # type: ignore[arg-type]


def _vars(trace: Trace, args: Args, kwargs: Kwargs) -> Any:
    """Return the ``__dict__`` of a proxy."""
    if len(args) != 1 or kwargs:
        return plainly(vars, args, kwargs)
    try:
        return trace.objects.load_attr(args[0], "__dict__")
    except AttributeError as missing:
        trace.interp.dealt_with(missing)
        raise TypeError("vars() argument must have __dict__ attribute") from None


RULES.add(_read_frame, *FRAME_RULES)


@RULES.rule(globals)
def _globals(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the namespace of the calling function."""
    frame = trace.interp.current_frame()
    return trace.objects.namespace(frame.globals).proxy


@RULES.unpacked(super, count=(0, 2))
def _super(trace: Trace, *args: Any) -> Any:
    """Return the super object. If the call has no arguments, use the arguments of the calling method. Break
    the graph if ``super`` refuses a tensor because its fake has another class.
    """
    args = args or super_arguments(trace.interp.current_frame())
    try:
        return plainly(super, args, {})
    except TypeError:
        if not isinstance(args[-1], torch.Tensor):
            raise
    raise graph_break("unsupported-call", "super() of a tensor whose fake has another class")


# --- functions that iterate over their arguments -------------------------------------------------


def _iterate(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Convert the arguments over which ``fn`` iterates to iterators of the trace. Then run ``fn`` for real."""
    first, last = _ITERATED[fn]
    orders = trace.objects.set_orders

    def is_iterated(value: object) -> bool:
        if first and value is args[0]:  # CPython first copies a list that is extended by itself
            return False
        return _needs_iterator(value) or id(value) in orders

    if any(map(is_iterated, args[first:last])):
        iterate = trace.calls.iterate
        iterated = (iterate(v) if is_iterated(v) else v for v in args[first:last])
        args = (*args[:first], *iterated, *args[last:])
    return run(trace, fn, args, kwargs)


def _needs_iterator(value: object) -> bool:
    """Whether ``value`` is a tensor or an object whose ``__iter__`` may be Python code."""
    kind = type(value)
    if kind in _CONTAINERS or hasattr(kind, "__next__"):
        return False
    return hasattr(kind, "__iter__") and not is_immutable(kind)


_ITERATED: dict[Any, tuple[int, int]] = {
    **dict.fromkeys(
        (enumerate, list, tuple, set, frozenset, sorted, sum, any, all, collections.deque), (0, 1)
    ),
    **dict.fromkeys((itertools.islice, itertools.cycle, itertools.accumulate, itertools.pairwise), (0, 1)),
    **dict.fromkeys((itertools.permutations, itertools.combinations, itertools.groupby), (0, 1)),
    **dict.fromkeys((zip, itertools.product, itertools.zip_longest), (0, 1 << 30)),
    **dict.fromkeys((filter, functools.reduce, list.extend), (1, 2)),
    map: (1, 1 << 30),
}
"""Maps a function to the arguments that it iterates over: the first position, and the end position."""
RULES.add(_iterate, *_ITERATED)


@RULES.rule(set.pop)
def _set_pop(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Remove an item of a set. For a set of objects, break the graph, because its order may differ in each
    call.
    """
    if args and id(args[0]) in trace.objects.set_orders:
        raise graph_break("unsupported-object", "pop() of a set of objects")
    return run(trace, fn, args, kwargs)


@RULES.rule(min, max)
def _extremum(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return the least or greatest value. If values are tensors or symbolic numbers, the graph selects the
    result.
    """
    orders = trace.objects.set_orders
    if trace.options.fullgraph and _may_select(args, kwargs):
        items = args[0] if len(args) == 1 else args
        return trace.interp.call_function(polyfill.fold_extremum, (fn, items, kwargs), {})
    if len(args) == 1 and (_needs_iterator(args[0]) or id(args[0]) in orders):
        args = (trace.calls.iterate(args[0]),)
    if len(args) == 2 and not kwargs and any(_is_computed(trace, arg) for arg in args):
        selected = trace.torch.extremum(fn, *args)
        if selected is not NotImplemented:
            return selected
    return run(trace, fn, args, kwargs)


def _is_computed(trace: Trace, value: object) -> bool:
    """Whether the graph computes ``value``."""
    return isinstance(value, torch.Tensor) or trace.torch.is_symbolic(value)


def _may_select(args: Args, kwargs: Kwargs) -> bool:
    """Whether ``min`` or ``max`` compares tensors. The graph would select one of them."""
    if len(args) == 1 and kwargs.keys() <= {"default"}:
        (items,) = args
        if isinstance(items, torch.Tensor) or hasattr(type(items), "__next__"):
            return True
        return type(items) in (list, tuple) and any(isinstance(item, torch.Tensor) for item in items)
    return len(args) > 2 and not kwargs and any(isinstance(arg, torch.Tensor) for arg in args)
