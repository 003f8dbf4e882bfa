"""Run C code for real on objects of the trace.

Lazy dictionaries that the C code may read are filled before. If the C code starts Python frames, the frame
hook (in intercept mode) passes them to the dispatcher. A torch-function mode records torch calls on fakes.
Symbolic numbers are replaced by their values, with a guard, unless the function is known to keep symbolic
numbers.
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
from fxstack_capture.calls import callbacks, scan
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
from fxstack_capture.trace.state import Args, Kwargs, Trace
from fxstack_interchange.format.symbols import SYMBOLIC

_TORCH = Path(torch.__file__).parent


@functools.cache
def passthrough_paths() -> Any:
    """Return the paths of files whose Python code runs for real under interception, for ``native.intercept``.

    The code in these files implements the trace's numbers and tensors.
    """
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
    # These ``__repr__`` methods are no exception, because ``printing`` has a rule for them.
    texts = tuple(cls.__repr__.__code__ for cls in SYMBOLIC)
    return native.Passthrough(prefixes, texts)


def hashes(fn: object, args: Args) -> bool:
    """Whether a call of ``fn`` with ``args`` may distinguish objects by their hashes."""
    traits = traits_of(fn)
    if traits & HASHES_KEY:
        return bool(args) and isinstance(args[0], (dict, set, frozenset))
    return bool(traits & HASHES)


_HOLDING = (types.SimpleNamespace,)
"""C classes whose methods read attributes of their instances."""


def _name(fn: object) -> str:
    """Return the phrase for messages, for example "a call of list.sort"."""
    return f"a call of {getattr(fn, '__qualname__', fn)}"


def run(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Run a C function for real on objects of the trace, and return its result.

    Rules and the cases of ``precedence`` call this. It handles callables, iterators and symbolic numbers
    among the arguments.
    """
    callback_positions = CALLBACKS.get(id(fn))
    if callback_positions is not None:
        args, kwargs = callbacks.with_routes(trace, callback_positions, args, kwargs)
    iterated = CONSUMED.get(id(fn))
    if iterated is not None:
        args = callbacks.with_readers(trace, iterated, args)
    result = _run_on(trace, fn, args, kwargs)
    # The text may contain the address of a proxy, which must not leave the trace.
    if type(result) is str and "0x" in result:
        trace.objects.addresses.demand_none(result)
    return trace.torch.decided(result) if type(result) is torch.SymBool else result


@calls_program
def _run_on(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Scan the arguments, prepare them for C code, and run ``fn``.

    Lazy dictionaries are filled. Symbolic numbers are replaced by plain numbers if ``fn`` needs plain
    numbers, or if the first run fails.
    """
    objects = trace.objects
    # The scan does not read the parts of a slice.
    if args and type(args[0]) is slice:
        args = specialized(trace, args)
    values = (*args, *kwargs.values()) if kwargs else args
    python_objects: list[Any] = []
    every, keys = hashes(fn, args), bool(traits_of(fn) & (HASHES_KEY | IGNORES_VALUES))
    flags = scan.scan(trace, values, python_objects, every=every, keys=keys)
    if not flags:
        return fn(*args, **kwargs)
    if flags & scan.LAZY:
        # Filling a dictionary adds objects, so scan again.
        scan.complete(objects, values, instances=False)
        flags |= scan.scan(trace, values, python_objects, every=every, keys=keys)
    watched = python_objects if flags & (scan.TENSOR | scan.PYTHON) else None
    if flags & scan.SYMBOLIC:
        args, kwargs = _plain_numbers(trace, fn, args, kwargs)
        try:
            return _run(trace, fn, args, kwargs, watched)
        except Exception as error:
            if not _is_due_to_symbols(trace, error, watched):
                raise
        # Run again with plain numbers. A plain number supports more operations than a symbol, and raises the
        # right error.
        args = specialized(trace, args)
        kwargs = {name: specialized(trace, value) for name, value in kwargs.items()}
    return _run(trace, fn, args, kwargs, watched)


def _is_due_to_symbols(trace: Trace, error: Exception, watched: list[Any] | None) -> bool:
    """Whether ``error`` may be caused by a symbolic number, so that a run with plain numbers may succeed.

    If the call has run code of the program, it is not repeated. The exception is a TypeError that names a
    symbolic class.
    """
    if isinstance(error, TypeError) and mentions_symbols(error):
        return True
    return watched is None and not isinstance(error, StopIteration) and not trace.interp.raises(error)


@calls_program
def _run(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs, watched: list[Any] | None) -> Any:
    """Run ``fn``. ``watched`` are the arguments, and parts of arguments, whose use may start Python frames.
    Break the graph if an opaque object is among them, unless ``fn`` only moves or identifies it.

    ``watched`` is None if the call starts no Python frames and calls nothing of torch.
    """
    if watched is None:
        return fn(*args, **kwargs)
    objects = trace.objects
    identified = hashes(fn, args) or _compares(fn)
    moved = _moves_values(fn, args)
    if any(issubclass(type(value), _HOLDING) for value in watched):
        scan.complete(objects, (*args, *kwargs.values()), instances=True)
    for value in watched:
        if id(value) in objects.opaque and not moved and not _may_take(fn, value):
            raise graph_break("unsupported-object", f"a {type(value).__qualname__} in {_name(fn)}")
        objects.classes.note_special_methods(type(value))
        if identified:
            objects.distinctions.note_identified(value)
    return run_intercepted(trace, fn, args, kwargs)


def _may_take(fn: object, value: object) -> bool:
    """Whether the guards of an opaque object ``value`` determine the result of ``fn``."""
    traits = traits_of(fn)
    if _compares(fn) and _is_equal_to_itself_alone(type(value)):
        return True
    return bool(traits & IDENTIFIES or (traits & READS_DECIMALS and type(value) is decimal.Decimal))


def _compares(fn: object) -> bool:
    """Whether ``fn`` is ``==`` or ``!=``."""
    return fn is operator.eq or fn is operator.ne


def _is_equal_to_itself_alone(cls: type) -> bool:
    """Whether instances of ``cls`` compare by identity, so that an instance equals only itself."""
    return all(getattr(cls, name) is getattr(object, name) for name in ("__eq__", "__ne__"))


_UPDATE = dict.update


def _moves_values(fn: object, args: Args) -> bool:
    """Whether ``fn`` is ``dict.update`` of plain dictionaries with string keys. This method reads no value."""
    return fn is _UPDATE and all(type(arg) is dict and all(type(k) is str for k in arg) for arg in args)


def _plain_numbers(
    trace: Trace, fn: object, args: Args, kwargs: Kwargs
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments, with plain numbers in place of the symbolic numbers that ``fn`` does not support."""
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
def run_intercepted(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Run ``fn``: interpret its callbacks and record its torch calls.

    Without the native extension, callbacks run natively. In this case, all objects that they may read are
    filled before.
    """
    with trace.torch.function_mode():
        if native.AVAILABLE:
            return native.intercept(trace.calls.call_back, fn, args, kwargs, passthrough_paths())
        scan.complete(trace.objects, (*args, *kwargs.values()), instances=True)
        return fn(*args, **kwargs)


def _has_float(args: Args) -> bool:
    """Whether an argument is a float, plain or symbolic."""
    return any(isinstance(arg, (float, torch.SymFloat)) for arg in args)


def specialized(trace: Trace, value: object) -> Any:
    """Return ``value`` with plain numbers in place of symbolic numbers. The numbers are guarded.

    A mutable container is changed in place.
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
