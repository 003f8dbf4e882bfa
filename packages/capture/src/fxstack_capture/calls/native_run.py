"""Run C code for real on objects of the trace.

What it may look into is completed first. Python frames that it starts come back to the dispatcher
(frame hook in intercept mode), torch calls that it makes on trace tensors are recorded
(torch-function mode). Numbers that are symbolic are replaced by their values, with a guard, unless
the function is known to treat them as numbers.
"""

from __future__ import annotations

import collections
import decimal
import functools
import operator
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sympy
import torch

from fxstack_capture import native
from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.calls import callbacks, readers, scan
from fxstack_capture.calls.c_functions import (
    CALLBACKS,
    CONSUMED,
    FORMATS_TEXT,
    HASHES,
    HASHES_KEY,
    IDENTIFIES,
    IGNORES_VALUES,
    INTEGERS_ONLY,
    KEEPS_SYMBOLS,
    READS_DECIMALS,
    traits_of,
)
from fxstack_capture.interpreter.exceptions.errors import mentions_symbols
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.trace.state import Trace
from fxstack_interchange.format.symbols import SYMBOLIC

_TORCH = Path(torch.__file__).parent


@functools.cache
def passthrough() -> Any:
    """Code below these paths implements numbers of the trace and tensors: it runs for real."""
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


def hashes(fn: object, args: tuple[Any, ...]) -> bool:
    """Whether a function may tell objects apart by their hashes."""
    traits = traits_of(fn)
    if traits & HASHES_KEY:
        return bool(args) and isinstance(args[0], (dict, set, frozenset))
    return bool(traits & HASHES)


_HOLDING = (types.SimpleNamespace,)
"""Classes written in C that read the attributes of their instances."""


def _name(fn: object) -> str:
    return f"a call of {getattr(fn, '__qualname__', fn)}"


def run(trace: Trace, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    taken = CALLBACKS.get(id(fn))
    if taken is not None:
        args, kwargs = callbacks.routed(trace, taken, args, kwargs)
    where = CONSUMED.get(id(fn))
    if where is not None:
        args = readers.read(trace, where, args)
    result = _run_on(trace, fn, args, kwargs)
    if type(result) is str and "0x" in result:
        trace.objects.addresses.demand_none(result)
    return trace.torch.decided(result) if type(result) is torch.SymBool else result


@calls_program
def _run_on(trace: Trace, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    objects = trace.objects
    if args and type(args[0]) is slice:
        args = specialized(trace, args)
    values = (*args, *kwargs.values()) if kwargs else args
    found: list[Any] = []
    every, keys = hashes(fn, args), bool(traits_of(fn) & (HASHES_KEY | IGNORES_VALUES))
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
    objects = trace.objects
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
    traits = traits_of(fn)
    return bool(traits & IDENTIFIES or (traits & READS_DECIMALS and type(value) is decimal.Decimal))


def _plain_numbers(
    trace: Trace, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with symbolic numbers replaced where ``fn`` needs the numbers themselves."""
    traits = traits_of(fn)
    if not traits & KEEPS_SYMBOLS or (traits & INTEGERS_ONLY and _has_float(args)):
        args = specialized(trace, args)
        kwargs = {name: specialized(trace, value) for name, value in kwargs.items()}
    elif traits & FORMATS_TEXT and isinstance(args[0], (str, bytes, bytearray)):
        args = specialized(trace, args)
    elif traits & HASHES_KEY and len(args) > 1 and isinstance(args[0], dict):
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
