"""Rules of NumPy functions, methods and scalar types on arrays of the trace.

Conversions from tensors to arrays are included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fxstack_capture.calls.table import Rule, RuleTable
from fxstack_capture.numpy_side import wrapping
from fxstack_capture.numpy_side.functions import pairs
from fxstack_capture.numpy_side.scalar import item
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()

RULES.add(wrapping.to_arrays, wrapping.traced_to_arrays)
RULES.add(wrapping.to_tensors, wrapping.traced_to_tensors)


@RULES.rule(item)
def _item(_trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``item`` of a NumPy scalar whose value changes between calls."""
    return item(args[0]) if len(args) == 1 and not kwargs else args[0].settle().item(*args[1:])


_TAKE_TENSORS = (np.array, np.asarray, np.ascontiguousarray)


def _rule(fn: Callable[..., Any]) -> Rule:
    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if fn in _TAKE_TENSORS and args and isinstance(args[0], torch.Tensor):
            args = (trace.torch.call(torch.Tensor.numpy, args[:1], {}), *args[1:])
        return trace.torch.arrays.call(fn, args, kwargs)

    return rule


for _pair in pairs().values():
    if getattr(_pair.theirs, "__module__", None) not in ("_operator", "builtins"):
        RULES.add(_pair.theirs, _rule(_pair.theirs))


def _about(fn: Callable[..., Any]) -> Rule:
    """The rule of a function of types. The function reads no array elements."""

    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return trace.torch.arrays.about(fn, args, kwargs)

    return rule


for _fn in (np.dtype, np.finfo, np.iinfo, np.result_type, np.can_cast, np.promote_types, np.issubdtype):
    RULES.add(_fn, _about(_fn))
