"""A torch-function mode that records the torch calls of C code of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.overrides import TorchFunctionMode

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.torch_compat import get_function_stack_at, len_torch_function_stack, pop_mode_temporarily
from fxstack_capture.torch_side.numbers import known_values
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.rules.attributes import accessed
from fxstack_capture.torch_side.subclasses.overrides import is_accessor
from fxstack_capture.trace.state import Args, Kwargs


class RecordingMode(TorchFunctionMode):
    """Passes torch calls to the tracer, unless the tracer itself makes the call. On around C code."""

    def __init__(self, tracer: TracerProtocol) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tracer = self._tracer
        if tracer.busy:
            return func(*args, **kwargs)
        if is_accessor(func):
            return accessed(tracer, func, args)
        if getattr(func, "__name__", None) in _CONVERSIONS:  # C code needs a plain Python number
            constant = known_values.value_of(tracer, args[0])
            if constant is not None and constant.numel() == 1:
                return getattr(constant, func.__name__)()
            return self._number(func, args, kwargs)
        return tracer.call(func, args, kwargs)

    def _number(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Record the conversion of a tensor to a number by C code. Break the graph if the number depends on data."""
        try:
            return self._tracer.record(func, args, kwargs)
        except GraphBreak as reason:
            if reason.record.reason.id != "data-dependent-number":
                raise
            detail = reason.record.detail
        raise graph_break("data-dependent-value", detail)  # no option makes a number that C code can use


@contextmanager
def outside_c_code() -> Iterator[None]:
    """Suspend the mode while the interpreter runs a callback of C code.

    The dispatcher then sees the calls of the program. The other torch calls are calls of the tracer.
    """
    count = len_torch_function_stack()
    top = get_function_stack_at(count - 1) if count else None
    if type(top) is not RecordingMode:
        yield
        return
    with pop_mode_temporarily():
        yield


_CONVERSIONS = frozenset({"__int__", "__float__", "__index__", "__bool__", "__complex__"})
