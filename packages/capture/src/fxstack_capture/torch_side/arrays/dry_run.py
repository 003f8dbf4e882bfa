"""NumPy dry runs: real NumPy calls on example arrays, for the metadata of the result.

For the functions in ``functions``, the class, dtype, shape, strides and memory sharing of a result do not
depend on the elements. So the module needs no model of the metadata: it calls NumPy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import plainly
from fxstack_capture.trace.state import Args, Kwargs

# Limits: the graph breaks for operations that have other values in torch._numpy: division and powers of
# integers by arrays, argsort, searchsorted, cbrt, histogram, unique, eigenvectors. The graph also breaks for
# np.bool_ and np.complex64 together with tensors, and for a NumPy scalar as the first argument of a torch
# function. The strides of dimensions with one element may differ from NumPy's strides.

MAX_EXAMPLE_BYTES = 1 << 26
"""The largest size of an example array, in bytes."""


def fill_example(array: np.ndarray[Any, Any]) -> None:
    """Fill an example array with ones. If its integers may be indices, fill it with zeros. Few functions
    reject these.
    """
    array[...] = 1 if array.dtype.kind in "fc" else 0


def call_numpy(fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return NumPy's result of a call with example arrays.

    Most exceptions break the graph, so that plain Python raises the exact exception. For a write to a
    read-only array, NumPy's exception is raised here.
    """
    if getattr(fn, "__module__", None) == "numpy.linalg":
        args = tuple(_invertible(arg) for arg in args)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = fn(*args, **kwargs)
    except Exception as error:
        if isinstance(error, ValueError) and str(error).endswith("is read-only"):
            return plainly(fn, args, kwargs)  # this error does not depend on the elements
        raise graph_break("unsupported-call", f"{name_of(fn)} ({error})") from error
    return result


def _invertible(arg: object) -> Any:
    """Return an identity matrix in place of a square matrix. ``numpy.linalg`` then raises no error."""
    if isinstance(arg, np.ndarray) and arg.ndim >= 2 and arg.shape[-1] == arg.shape[-2]:
        return np.broadcast_to(np.eye(arg.shape[-1], dtype=arg.dtype), arg.shape)
    return arg


def name_of(fn: object) -> str:
    """Return the name of a NumPy function for the text of a graph break."""
    module = getattr(fn, "__module__", None)
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or str(fn)
    return f"{module}.{name}" if module and module.startswith("numpy") else name


def shares_memory(result: object, arrays: Iterable[Any]) -> bool:
    """Return whether a result of the dry run shares memory with an example array among the arguments."""
    return isinstance(result, np.ndarray) and any(
        isinstance(array, np.ndarray) and np.may_share_memory(result, array) for array in arrays
    )
