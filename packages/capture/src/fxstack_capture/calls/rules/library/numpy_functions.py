"""Rules of NumPy functions, methods and scalar types on arrays of the trace.

These include conversions from tensors to arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fxstack_capture.calls.rules import RULES
from fxstack_capture.numpy_side import wrapping
from fxstack_capture.numpy_side.functions import pairs
from fxstack_capture.numpy_side.scalar import item
from fxstack_capture.trace.state import Args, Kwargs, Trace

RULES.add(wrapping.traced_to_arrays, wrapping.to_arrays)
RULES.add(wrapping.traced_to_tensors, wrapping.to_tensors)


@RULES.rule(item)
def _item(_trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Call ``item`` of a NumPy scalar whose value changes between calls."""
    return item(args[0]) if len(args) == 1 and not kwargs else args[0].settle().item(*args[1:])


_OF_TYPES = (np.dtype, np.finfo, np.iinfo, np.result_type, np.can_cast, np.promote_types, np.issubdtype)
_TAKE_TENSORS = (np.array, np.asarray, np.ascontiguousarray)


def _call_on_arrays(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Record a NumPy function as torch operators on the tensors of its arrays."""
    if fn in _TAKE_TENSORS and args and isinstance(args[0], torch.Tensor):
        args = (trace.torch.call(torch.Tensor.numpy, args[:1], {}), *args[1:])
    return trace.torch.arrays.call(fn, args, kwargs)


for _pair in pairs().values():
    if _pair.theirs not in _OF_TYPES and getattr(_pair.theirs, "__module__", None) not in (
        "_operator",
        "builtins",
    ):
        RULES.add(_call_on_arrays, _pair.theirs)


@RULES.rule(*_OF_TYPES)
def _about_types(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Call a function that reads only types. It reads no array elements."""
    return trace.torch.arrays.about(fn, args, kwargs)
