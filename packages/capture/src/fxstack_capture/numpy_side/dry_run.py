"""Calls of NumPy on arrays that are like those of the program: what NumPy itself says about the result.

Class, dtype, shape, strides and sharing of memory of a result do not depend on the elements, for the functions that
``functions`` lists. So they are not modelled: NumPy is asked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fxstack_capture.breaks import graph_break

# Limits: the graph ends where torch._numpy is known to compute another value: division and powers of integers
# by arrays, argsort, searchsorted, cbrt, histogram, unique, eigenvectors. It also ends for np.bool_ and
# np.complex64 beside tensors, and for NumPy scalars as first argument of torch functions. Strides of
# dimensions of one element may differ from NumPy's.

LARGEST = 1 << 26
"""Bytes of one array up to which calls are rehearsed."""


def contents(array: np.ndarray[Any, Any]) -> None:
    """Elements that few functions refuse: ones, and zeros where a number may be an index."""
    array[...] = 1 if array.dtype.kind in "fc" else 0


def rehearse(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What NumPy gives; any exception ends the graph, so that the program meets the real one."""
    if getattr(fn, "__module__", None) == "numpy.linalg":
        args = tuple(_invertible(arg) for arg in args)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = fn(*args, **kwargs)
    except Exception as error:
        raise graph_break("unsupported-call", f"{name_of(fn)} ({error})") from error
    return result


def _invertible(arg: object) -> Any:
    if isinstance(arg, np.ndarray) and arg.ndim >= 2 and arg.shape[-1] == arg.shape[-2]:
        return np.broadcast_to(np.eye(arg.shape[-1], dtype=arg.dtype), arg.shape)
    return arg


def name_of(fn: object) -> str:
    """A function's name for people."""
    module = getattr(fn, "__module__", None)
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or str(fn)
    return f"{module}.{name}" if module and module.startswith("numpy") else name


def shares(result: object, arrays: Iterable[Any]) -> bool:
    """Whether NumPy's result is a view of one of its arguments."""
    return isinstance(result, np.ndarray) and any(
        isinstance(array, np.ndarray) and np.may_share_memory(result, array) for array in arrays
    )
