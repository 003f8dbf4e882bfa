"""Operators, truth and iteration on objects of the trace."""

from __future__ import annotations

import itertools
import operator
import types
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.operators import numpy_scalars, tensor_methods
from fxstack_capture.calls.operators.first_states import demand_present
from fxstack_capture.calls.operators.plain_objects import is_ours
from fxstack_capture.native.class_flags import is_immutable
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.objects.kinds.consumed_iterators import entered
from fxstack_capture.objects.kinds.containers import set_order
from fxstack_capture.shapes.symbolic.exact_comparisons import EXACT
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Calls

_PLAIN: frozenset[type] = frozenset({int, float, complex, str, bytes, bool, type(None)})
_SIZED: frozenset[type] = _PLAIN | {list, tuple, set, frozenset, range, torch.Size}
_ITERABLE: frozenset[type] = frozenset({list, tuple, set, frozenset, range, str, bytes, torch.Size})
_ITERABLES: tuple[Any, ...] = ([], (), {}, {}.values(), {}.items(), set(), range(0), "", b"")
_NATIVE_ITERATORS: frozenset[type] = frozenset(type(iter(value)) for value in _ITERABLES) | {
    type(reversed([]))
}
_GIVE_THEMSELVES: frozenset[type] = _NATIVE_ITERATORS | {
    *(types.GeneratorType, zip, map, filter, enumerate, reversed),
    *(v for v in vars(itertools).values() if isinstance(v, type) and hasattr(v, "__next__")),
}
"""Iterator types whose ``__iter__`` returns the iterator itself."""

_COMPARISONS = frozenset({operator.eq, operator.ne})
_RELATIONS = _COMPARISONS | {operator.lt, operator.le, operator.gt, operator.ge}


# --- two operands --------------------------------------------------------------------------------


@calls_program
def binary(calls: Calls, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
    """Return ``op(left, right)`` for objects of the trace. ``op`` is a function of module ``operator``.

    The interpreter calls this for operators in the bytecode. Methods of the program are interpreted.
    """
    kind, other = type(left), type(right)
    if kind in _PLAIN and other in _PLAIN:
        return op(left, right)
    if kind is Scalar or other is Scalar:
        return numpy_scalars.binary(calls, op, left, right)
    if kind is Array or (other is Array and not _is_index(op, left)):
        return calls.trace.torch.arrays.call(op, (left, right), {})
    if op in _RELATIONS and (kind is torch.SymFloat or other is torch.SymFloat):
        left, right = _beside_large(calls, left, right), _beside_large(calls, right, left)
    if op in _BITWISE and torch.SymFloat in (kind, other) and {kind, other} <= _EXAMPLES.keys():
        return op(_EXAMPLES[kind], _EXAMPLES[other])  # this raises, although torch could shift floats
    if op in _COMPARISONS:
        calls.objects.distinctions.note_compared(left, right)
    special = _SPECIAL.get(op)
    if special is not None:
        return special(calls, left, right)
    if op in _FORMATTING and isinstance(left, (str, bytes, bytearray)):
        return run(calls.trace, op, (left, right), {})
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        result = tensor_methods.binary(calls, op, left, right)
        if result is NotImplemented:
            result = calls.trace.torch.call(op, (left, right), {})
        return result
    return run(calls.trace, op, (left, right), {})


_BITWISE = frozenset(
    {operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor}
    | {operator.ilshift, operator.irshift, operator.iand, operator.ior, operator.ixor}
)
_EXAMPLES = {torch.SymFloat: 1.0, torch.SymInt: 1, torch.SymBool: True, int: 1, float: 1.0, bool: True}
"""An example number of each class. An operator that can only raise is applied to examples."""


def _beside_large(calls: Calls, value: object, other: object) -> Any:
    """Return ``value`` for an operation with ``other``.

    If torch would round the integer ``other`` to a float, return the plain number of ``value``.
    """
    rounded = type(value) is torch.SymFloat and type(other) is int and abs(other) > EXACT
    return calls.trace.torch.specialize(value) if rounded else value


_FORMATTING = frozenset({operator.mod, operator.imod})
"""``%`` and ``%=``. A string formats objects of any class with them."""


def _is_index(op: Callable[[Any, Any], Any], left: object) -> bool:
    """Whether the operation is ``tensor[...]``. If the index is an array, torch handles it."""
    return op is operator.getitem and isinstance(left, torch.Tensor)


@calls_program
def _getitem(calls: Calls, left: Any, right: Any) -> Any:
    """Compute ``left[right]``. A lazy dictionary is read without filling it completely."""
    kind = type(left)
    if (kind is list or kind is tuple) and type(right) is int:
        return operator.getitem(left, right)
    if kind is dict:
        state = calls.objects.lazy.get(id(left))
        if state is None:
            if type(right) in _PLAIN:
                return operator.getitem(left, right)
        elif state.simple(right):
            value = state.get(right)
            if value is ABSENT:
                raise KeyError(right)
            return value
    if isinstance(left, torch.Tensor):
        method = tensor_methods.method(calls, left, "__getitem__")
        if method is None:
            return calls.trace.torch.call(operator.getitem, (left, right), {})
        return calls.call(method, (left, right), {})
    if isinstance(left, type):
        return _class_getitem(calls, left, right)
    method = user_method(calls, left, "__getitem__")
    if method is not None:
        return calls.call(method, (left, right), {})
    if kind is defaultdict:
        demand_present(calls, left, right)
    if kind is not dict:
        return run(calls.trace, operator.getitem, (left, right), {})
    calls.objects.expand(left)
    lookup = left.__getitem__  # as the receiver, the dictionary is not scanned for its values
    return run(calls.trace, lookup, (right,), {})


@calls_program
def _class_getitem(calls: Calls, cls: Any, key: Any) -> Any:
    """Compute ``cls[key]`` for a class, by its metaclass or by its ``__class_getitem__``."""
    meta = calls.objects.classes.lookup(type(cls), "__getitem__")
    if meta is not ABSENT:
        return calls.call(meta, (cls, key), {})
    if calls.objects.classes.lookup(cls, "__class_getitem__") is ABSENT:
        return operator.getitem(cls, key)
    return calls.call(calls.objects.load_attr(cls, "__class_getitem__"), (key,), {})


@calls_program
def _contains(calls: Calls, container: Any, item: object) -> Any:
    """Compute ``item in container``. A lazy dictionary is read without filling it completely."""
    if type(item) is torch.SymInt and _has_few_integers(calls, container):
        return _contains_by_comparing(calls, container, item)
    if type(container) is dict:
        state = calls.objects.lazy.get(id(container))
        if state is None:
            return (
                item in container
                if type(item) in _PLAIN
                else run(calls.trace, container.__contains__, (item,), {})
            )
        if state.simple(item):
            return state.get(item) is not ABSENT
        state.expand()
        return run(calls.trace, container.__contains__, (item,), {})
    if isinstance(container, torch.Tensor):
        method = tensor_methods.method(calls, container, "__contains__")
        if method is None:
            return calls.trace.torch.call(operator.contains, (container, item), {})
        return calls.truth(calls.call(method, (container, item), {}))
    method = user_method(calls, container, "__contains__")
    if method is not None:
        return calls.truth(calls.call(method, (container, item), {}))
    if _any_tensor_inside(container, item):
        return _contains_by_comparing(calls, container, item)
    return run(calls.trace, operator.contains, (container, item), {})


def _any_tensor_inside(container: Any, item: object) -> bool:
    """Whether ``item``, or an item of a list or tuple, is a tensor. Then ``in`` compares tensors."""
    if type(container) not in (list, tuple):
        return False
    return isinstance(item, torch.Tensor) or any(isinstance(x, torch.Tensor) for x in container)


def _has_few_integers(calls: Calls, container: Any) -> bool:
    """Whether ``in`` must compare a symbolic number with the keys of ``container`` one by one: they are few
    integers.

    A lookup by hash would need a guard on the value of the number, so that the graph would serve only this
    value.
    """
    if getattr(type(container), "__contains__", None) not in _HASHED:
        return False
    calls.objects.expand(container)
    return len(container) <= _FEW and all(type(key) is int for key in container)


_HASHED = (dict.__contains__, set.__contains__, frozenset.__contains__)
"""The methods of ``in`` that look up a hash."""
_FEW = 16
"""The largest number of keys that are compared one by one. Each comparison adds a guard. With more keys, one
graph for each number is cheaper.
"""


def _contains_by_comparing(calls: Calls, container: Any, item: object) -> bool:
    """Do what ``PySequence_Contains`` does: compare the identity first, then compare by ``==``."""
    return any(
        member is item or calls.truth(binary(calls, operator.eq, member, item)) for member in container
    )


def special_method(calls: Calls, obj: object, name: str) -> Any:
    """Return the Python function of a special method of ``obj``, or None.

    For a tensor or an array, return None, because ``tensor_methods`` and ``numpy_side`` handle these.
    """
    return None if isinstance(obj, (torch.Tensor, Array)) else user_method(calls, obj, name)


def user_method(calls: Calls, obj: object, name: str) -> Any:
    """Return the Python function that implements a special method in the class of ``obj``. None if there is
    none.
    """
    cls = type(obj)
    if is_immutable(cls):
        return None
    method = calls.objects.classes.lookup(cls, name)
    return method if type(method) is types.FunctionType else None


_SPECIAL: dict[Callable[..., Any], Callable[[Calls, Any, Any], Any]] = {
    operator.getitem: _getitem,
    operator.contains: _contains,
}
"""Maps an operator with special handling to the function that computes it."""


# --- one operand ---------------------------------------------------------------------------------


@calls_program
def unary(calls: Calls, op: Callable[[Any], Any], value: object) -> Any:
    """Return ``op(value)`` for an object of the trace. ``op`` is a function of module ``operator``."""
    if type(value) in _PLAIN:
        return op(value)
    if type(value) is Scalar and op not in (operator.not_, operator.truth):
        return numpy_scalars.unary(calls, op, value)
    if type(value) is Array and op not in (operator.not_, operator.truth):
        return calls.trace.torch.arrays.call(op, (value,), {})
    if op is operator.not_:
        return not truth(calls, value)
    if op is operator.truth:
        return truth(calls, value)
    if isinstance(value, torch.Tensor):
        result = tensor_methods.unary(calls, op, value)
        if result is not NotImplemented:
            return result
        return calls.trace.torch.call(op, (value,), {})
    return run(calls.trace, op, (value,), {})


@calls_program
def truth(calls: Calls, value: Any) -> bool:
    """Return ``bool(value)``. Break the graph for a tensor of unknown value."""
    kind = type(value)
    if kind in _SIZED:
        return bool(value)
    if kind is dict:
        state = calls.objects.lazy.get(id(value))
        return bool(value) if state is None else state.length() != 0
    if kind is Array:
        result: bool = calls.trace.torch.arrays.call(bool, (value,), {})
        return result
    if isinstance(value, torch.Tensor):
        return _tensor_truth(calls, value)
    if kind is Scalar:
        return truth(calls, value.item())
    if kind in (torch.SymInt, torch.SymFloat):  # guard only whether the number is 0
        return bool(calls.trace.torch.specialize(value != 0))
    if kind is torch.SymBool:
        return bool(calls.trace.torch.specialize(value))
    for name in ("__bool__", "__len__"):
        method = user_method(calls, value, name)
        if method is not None:
            return _checked_truth(calls.call(method, (value,), {}), name)
        if not is_immutable(kind) and calls.objects.classes.lookup(kind, name) is not ABSENT:
            break
    return bool(run(calls.trace, bool, (value,), {}))


class _OfLength:
    """An object whose ``__len__`` returns ``length``. CPython's ``len`` then checks the value."""

    def __init__(self, length: Any) -> None:
        self.length = length

    def __len__(self) -> int:
        result: int = self.length
        return result


@calls_program
def length(calls: Calls, value: Any) -> Any:
    """Return ``len(value)``. If a Python ``__len__`` returns a symbolic size, the result is symbolic."""
    if type(value) is Array:
        return calls.trace.torch.arrays.call(len, (value,), {})
    if type(value) is torch.UntypedStorage and calls.trace.torch.storages.tensor_of(value) is not None:
        return calls.trace.torch.storages.size(value)
    method = user_method(calls, value, "__len__")
    if method is None:
        return run(calls.trace, len, (value,), {})
    result = calls.call(method, (value,), {})
    if isinstance(result, torch.SymInt) and result >= 0:
        return result
    return len(_OfLength(result))


@calls_program
def _checked_truth(result: Any, name: str) -> bool:
    """Convert the result of ``__bool__`` or ``__len__`` to a bool. Raises CPython's TypeError for a wrong
    result.
    """
    if name == "__bool__" and type(result) is not bool:
        if isinstance(result, torch.SymBool):
            return bool(result)
        raise TypeError(f"__bool__ should return bool, returned {type(result).__name__}")
    if name == "__bool__":
        return bool(result)
    if isinstance(result, torch.SymInt):
        return bool(result != 0)
    return len(_OfLength(result)) != 0


def _tensor_truth(calls: Calls, value: torch.Tensor) -> bool:
    """Return the truth of a tensor. Break the graph if it depends on tensor data."""
    method = tensor_methods.method(calls, value, "__bool__")
    if method is not None:
        return _checked_truth(calls.call(method, (value,), {}), "__bool__")
    result = calls.trace.torch.call(torch.Tensor.__bool__, (value,), {})
    if type(result) is bool:
        return result
    if isinstance(result, torch.SymBool):
        return bool(result)
    raise graph_break("data-dependent-branch", f"a tensor of shape {tuple(value.shape)}")


# --- iteration -----------------------------------------------------------------------------------


@calls_program
def iterate(calls: Calls, value: Any) -> Any:
    """Return ``iter(value)``: an iterator over objects of the trace."""
    kind = type(value)
    if id(value) in calls.objects.iterators or (
        kind in _GIVE_THEMSELVES and id(value) in calls.objects.opaque
    ):
        return value
    if (kind is set or kind is frozenset) and id(value) in calls.objects.set_orders:
        return iter(set_order(calls.objects, value) or ())
    if kind in _ITERABLE or kind in _NATIVE_ITERATORS:
        return iter(value)
    if kind is dict:
        calls.objects.expand(value)
        return iter(value)
    if kind is Array:
        return calls.trace.torch.arrays.iterate(value)
    if isinstance(value, torch.Tensor):
        method = tensor_methods.method(calls, value, "__iter__")
        if method is None:
            return calls.trace.torch.call(torch.Tensor.__iter__, (value,), {})
    else:
        method = user_method(calls, value, "__iter__")
    if method is not None:
        iterator = calls.call(method, (value,), {})
        if not hasattr(type(iterator), "__next__"):
            raise TypeError(f"iter() returned non-iterator of type '{type(iterator).__name__}'")
        return iterator
    return run(calls.trace, iter, (value,), {})


@calls_program
def advance(calls: Calls, iterator: Any) -> Any:
    """Return ``next(iterator)``. Raises StopIteration at the end."""
    consumed = calls.objects.iterators.get(id(iterator))
    if consumed is not None:
        return entered(calls.objects, consumed.next())
    if type(iterator) in _NATIVE_ITERATORS:
        if id(iterator) in calls.objects.opaque:
            raise graph_break(
                "unsupported-object", "an iterator that was partially consumed outside of the graph"
            )
        return next(iterator)
    method = user_method(calls, iterator, "__next__")
    if method is not None and not is_ours(iterator):
        return calls.call(method, (iterator,), {})
    return run(calls.trace, next, (iterator,), {})
