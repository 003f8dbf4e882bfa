"""``record_function``: ranges of torch's profiler, which graphs have only with the option ``profiler_ranges``."""

from __future__ import annotations

import inspect
import logging
from functools import cache
from typing import Any, Self

import torch
from torch.autograd.profiler import record_function

from fxstack_capture.callers import plainly
from fxstack_capture.calls.rules import RULES
from fxstack_capture.torch_side.rules import profiler_ranges
from fxstack_capture.trace.rule_registry import Request
from fxstack_capture.trace.state import Args, Kwargs, Trace


class IdleRegion(record_function):
    """A range that plain Python may end. Only graphs show the range; its methods do nothing in plain Python."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        return None


@RULES.rule(record_function)
def _make_record(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> IdleRegion:
    """Make a range that graphs show, and that plain Python may end."""
    bound = plainly(_RECORD_SIGNATURE.bind, (None, *args), kwargs)
    created_region = IdleRegion.__new__(IdleRegion)
    created_region.__dict__.update(name=bound.args[1], args=bound.arguments.get("args"))
    return created_region


_RECORD_SIGNATURE = inspect.signature(record_function.__init__)


@RULES.unpacked(record_function.__enter__, count=(1, 1))
def _enter_outside(trace: Trace, region: Any) -> Any:
    """Begin a range that was made outside of the graph."""
    # Plain Python may end the range, which it has not begun.
    trace.objects.store_attr(region, "run_callbacks_on_exit", False)
    return _enter_range(trace, region)


@RULES.unpacked(record_function.__exit__, count=(4, 4))
def _exit_outside(trace: Trace, region: Any, *error: object) -> None:
    """End a range that was made outside of the graph. Plain Python ends a range that it has begun."""
    if trace.objects.load_attr(region, "run_callbacks_on_exit"):  # plain Python has begun it
        trace.interp.call_function(record_function.__exit__, (region, *error), {})
        return
    trace.objects.store_attr(region, "run_callbacks_on_exit", True)
    _exit_range(trace, region, *error)


@RULES.unpacked(IdleRegion.__enter__, count=(1, 1))
def _enter_range(trace: Trace, region: Any) -> Any:
    """Record the beginning of the range, if the option ``profiler_ranges`` is set."""
    if trace.options.profiler_ranges:
        name, args = (trace.objects.load_attr(region, attribute) for attribute in ("name", "args"))
        trace.torch.call(profiler_ranges.begin, (name, args), {})
    else:
        _note_idle()
    return region


@cache
def _note_idle() -> None:
    """Log once that ranges are not recorded."""
    logging.getLogger(__name__).info("record_function has no effect without the option profiler_ranges")


@RULES.unpacked(IdleRegion.__exit__, count=(4, 4))
def _exit_range(trace: Trace, _region: object, *_error: object) -> None:
    """Record the end of the range, if the option ``profiler_ranges`` is set."""
    if trace.options.profiler_ranges:
        trace.torch.call(profiler_ranges.end, (), {})


@RULES.forward(torch._C._profiler._RecordFunctionFast)
def _fast_range(_trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Request:
    """Forward to ``record_function``."""
    return record_function, args[:1], {key: value for key, value in kwargs.items() if key == "name"}
