"""Run C code for real on trace-world objects.

What it may look into is completed first. Python frames that it starts come back to the dispatcher
(frame hook in intercept mode), torch calls that it makes on trace tensors are recorded
(torch-function mode). Numbers that are symbolic are replaced by their values, with a guard, unless
the function is known to treat them as numbers.
"""

from __future__ import annotations

import _operator
import abc
import collections
import decimal
import functools
import itertools
import math
import operator
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy
import torch

from fxstack_capture import native
from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.calls import callbacks, readers, scan
from fxstack_capture.interpreter.exceptions.errors import mentions_symbols
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_interchange.format.symbols import SYMBOLIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxstack_capture.trace.state import Trace

_TORCH = Path(torch.__file__).parent


@functools.cache
def passthrough() -> Any:
    """Code below these paths implements trace-world numbers and tensors: it runs for real."""
    torch_parts = (
        "__init__.py",
        "fx",
        "_subclasses",
        "_ops.py",
        "utils/_sympy",
        "utils/_python_dispatch.py",
        "_prims_common",
        "_logging",
        "_numpy",
    )
    prefixes = (
        str(Path(__file__).parents[1]),
        str(Path(sympy.__file__).parent),
        str(Path(np.__file__).parent),
        *(str(_TORCH / part) for part in torch_parts),
    )
    # A rule says what these are for the program.
    texts = tuple(cls.__repr__.__code__ for cls in SYMBOLIC)
    return native.Passthrough(prefixes, texts)


_NUMBER_FUNCTIONS: frozenset[int] = frozenset(
    id(fn)
    for fn in (
        *(v for v in vars(_operator).values() if callable(v)),
        *(v for v in vars(itertools).values() if isinstance(v, type)),
        *(
            member
            for cls in (
                list,
                tuple,
                dict,
                collections.deque,
                collections.OrderedDict,
                collections.defaultdict,
            )
            for name, member in vars(cls).items()
            if name not in {"__repr__", "__str__", "__format__"}
        ),
        operator.add,
        abs,
        len,
        callable,
        math.ceil,
        math.floor,
        math.trunc,
        math.prod,
        min,
        max,
        sum,
        sorted,
        pow,
        divmod,
        any,
        all,
        isinstance,
        id,
        map,
        zip,
        filter,
        enumerate,
        reversed,
        iter,
        next,
        list,
        tuple,
        dict,
        collections.deque,
        collections.OrderedDict,
        collections.defaultdict,
        functools.partial,
        functools.reduce,
        slice,
        torch.Size,
    )
)
"""Functions that treat a SymInt as the number that it is, or only move it around."""


_LOOKS_NOT = frozenset({"__repr__", "__iter__", "__len__", "values", "items", "keys", "copy"})
"""Methods of hash tables that do not ask where an object belongs."""

_INTEGER_FUNCTIONS: frozenset[int] = frozenset(
    map(id, (operator.floordiv, operator.mod, operator.ifloordiv, operator.imod))
)
"""Functions whose symbolic form is exact for integers only."""

_KEYED_FUNCTIONS: frozenset[int] = frozenset(
    id(fn)
    for fn in (
        *(operator.getitem, operator.setitem, operator.delitem, operator.contains),
        *(
            vars(cls)[name]
            for cls in (dict, collections.OrderedDict, collections.defaultdict)
            for name in (
                *("get", "__getitem__", "__contains__", "__setitem__", "__delitem__"),
                *("setdefault", "pop", "move_to_end", "__missing__"),
            )
            if name in vars(cls)
        ),
    )
)
"""Functions that hash their second argument if the first is a dictionary: SymInts have no hash."""

_HASHING: frozenset[int] = _KEYED_FUNCTIONS | {
    id(fn)
    for fn in (
        *(set, frozenset, dict, collections.OrderedDict, collections.defaultdict, hash),
        *(
            member
            for cls in (set, frozenset, dict, collections.OrderedDict)
            for name, member in vars(cls).items()
            if callable(member) and name not in _LOOKS_NOT
        ),
    )
}
"""Functions that may tell objects apart by their hashes."""

_HASHED = (dict, set, frozenset)

_MOVES_VALUES: frozenset[int] = frozenset(
    id(vars(cls)[name])
    for cls in (dict, collections.OrderedDict, collections.defaultdict)
    for name in ("update", "popitem", "clear", "copy", "__iter__", "__len__", "__copy__")
    if name in vars(cls)
)
"""Functions of dictionaries that do not look at the values of their first argument."""


def hashes(fn: object, args: tuple[Any, ...]) -> bool:
    """Whether a function may tell objects apart by their hashes."""
    if id(fn) in _KEYED_FUNCTIONS:
        return bool(args) and isinstance(args[0], _HASHED)
    return id(fn) in _HASHING


_HOLDING = (types.SimpleNamespace,)
"""Classes written in C that read the attributes of their instances."""

_FORMATTING: frozenset[int] = frozenset(map(id, (operator.mod, operator.imod)))
"""Functions that are something else for text than for numbers."""

_IDENTITY_FUNCTIONS: frozenset[int] = frozenset(
    map(id, (isinstance, vars(abc)["_abc_instancecheck"], id, callable, type, operator.is_))
)

_READS_DECIMALS: frozenset[int] = frozenset(
    id(fn)
    for fn in (
        *(float, int, str, repr, hash, bool, operator.truth, operator.eq, operator.ne),
        *(operator.lt, operator.le, operator.gt, operator.ge),
    )
)
"""Functions that do the same with a Decimal in every context."""


def _name(fn: object) -> str:
    return f"a call of {getattr(fn, '__qualname__', fn)}"


def run(trace: Trace, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    taken = callbacks.TAKEN.get(id(fn))
    if taken is not None:
        args, kwargs = callbacks.routed(trace, taken, args, kwargs)
    where = readers.TAKING.get(id(fn))
    if where is not None:
        args = readers.read(trace, where, args)
    result = _run_on(trace, fn, args, kwargs)
    if type(result) is str and "0x" in result:
        trace.objects.addresses.demand_none(result)
    return trace.torch.decided(result) if type(result) is torch.SymBool else result


@calls_program
def _run_on(trace: Trace, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    objects: Any = trace.objects
    if args and type(args[0]) is slice:
        args = specialized(trace, args)
    values = (*args, *kwargs.values()) if kwargs else args
    found: list[Any] = []
    every, keys = hashes(fn, args), id(fn) in _KEYED_FUNCTIONS or id(fn) in _MOVES_VALUES
    flags = scan.scan(trace, values, found, every=every, keys=keys)
    if not flags:
        return fn(*args, **kwargs)
    if flags & scan.LAZY:
        scan.complete(objects, values, instances=False)
        flags |= scan.scan(trace, values, found, every=every, keys=keys)
    watched = found if flags & (scan.TENSOR | scan.PYTHON) else None
    if flags & scan.SYMBOLIC:
        args, kwargs = _plain_numbers(trace, fn, args, kwargs)
        try:
            return _run(trace, fn, args, kwargs, watched)
        except Exception as error:
            if not _is_due_to_symbols(trace, error, watched):
                raise
        # What the number itself can do, or the error that it gives.
        args = specialized(trace, args)
        kwargs = {name: specialized(trace, value) for name, value in kwargs.items()}
    return _run(trace, fn, args, kwargs, watched)


def _is_due_to_symbols(trace: Trace, error: Exception, watched: list[Any] | None) -> bool:
    """Whether plain numbers may give something else. What has called the program's code is not done again for it."""
    if isinstance(error, TypeError) and mentions_symbols(error):
        return True
    return watched is None and not isinstance(error, StopIteration) and not trace.interp.raises(error)


@calls_program
def _run(
    trace: Trace,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    watched: list[Any] | None,
) -> Any:
    """``watched`` are the objects among the arguments whose use may start Python frames; None: it
    starts none and calls nothing of torch's.
    """
    if watched is None:
        return fn(*args, **kwargs)
    objects: Any = trace.objects
    identified = hashes(fn, args)
    if any(issubclass(type(value), _HOLDING) for value in watched):
        scan.complete(objects, (*args, *kwargs.values()), instances=True)
    for value in watched:
        if id(value) in objects.opaque and not _may_take(fn, value):
            raise graph_break("unsupported-object", f"a {type(value).__qualname__} in {_name(fn)}")
        objects.classes.note_special_methods(type(value))
        if identified:
            objects.distinctions.note_identified(value)
    return run_intercepted(trace, fn, args, kwargs)


def _may_take(fn: object, value: object) -> bool:
    """Whether what ``fn`` does with an opaque object is known from its guards."""
    return id(fn) in _IDENTITY_FUNCTIONS or (type(value) is decimal.Decimal and id(fn) in _READS_DECIMALS)


def _plain_numbers(
    trace: Trace, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with symbolic numbers replaced where ``fn`` needs the numbers themselves."""
    if id(fn) not in _NUMBER_FUNCTIONS or (id(fn) in _INTEGER_FUNCTIONS and _has_float(args)):
        args = specialized(trace, args)
        kwargs = {name: specialized(trace, value) for name, value in kwargs.items()}
    elif id(fn) in _FORMATTING and isinstance(args[0], (str, bytes, bytearray)):
        args = specialized(trace, args)
    elif id(fn) in _KEYED_FUNCTIONS and len(args) > 1 and isinstance(args[0], dict):
        args = (args[0], specialized(trace, args[1]), *args[2:])
    return args, kwargs


@calls_program
def run_intercepted(
    trace: Trace, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run with callbacks interpreted and torch's calls recorded.

    Without the native extension callbacks run natively, so what they may look at is completed
    before.
    """
    with trace.torch.function_mode():
        if native.AVAILABLE:
            return native.intercept(trace.calls.call_back, fn, args, kwargs, passthrough())
        scan.complete(trace.objects, (*args, *kwargs.values()), instances=True)
        return fn(*args, **kwargs)


def _has_float(args: tuple[Any, ...]) -> bool:
    return any(isinstance(arg, (float, torch.SymFloat)) for arg in args)


def specialized(trace: Trace, value: object) -> Any:
    """``value`` with plain numbers in place of symbolic ones; mutable containers are changed in
    place.
    """
    if type(value) is Scalar:
        return value.settle()
    if trace.torch.is_symbolic(value):
        return trace.torch.specialize(value)
    if isinstance(value, tuple):
        items = [specialized(trace, item) for item in value]
        if all(map(operator.is_, items, value)):
            return value
        kind = type(value)
        return torch.Size(items) if kind is torch.Size else tuple.__new__(kind, items)
    if type(value) is list or type(value) is collections.deque:
        items = [specialized(trace, item) for item in value]
        value.clear()
        value.extend(items)
    elif type(value) is dict:
        for key, item in value.items():
            value[key] = specialized(trace, item)
    elif type(value) is slice:
        return slice(*(specialized(trace, part) for part in (value.start, value.stop, value.step)))
    return value
