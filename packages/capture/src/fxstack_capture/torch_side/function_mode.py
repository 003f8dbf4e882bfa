"""While C code of the program runs: torch calls that it makes are recorded as well."""

from __future__ import annotations

from types import GetSetDescriptorType, MethodWrapperType
from typing import TYPE_CHECKING, Any

from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxstack_capture.torch_side.tracer import TorchTracer


class RecordingMode(TorchFunctionMode):
    """Routes torch calls to the tracer, unless the tracer itself is what makes them."""

    def __init__(self, tracer: TorchTracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        tracer = self._tracer
        if tracer.busy:
            return func(*args, **kwargs)
        if type(func) is MethodWrapperType and isinstance(func.__self__, GetSetDescriptorType):
            return _access(tracer, func, args)
        if getattr(func, "__name__", None) in _CONVERSIONS:  # C code wants a plain number
            return tracer.record(func, args, kwargs)
        return tracer.call(func, args, kwargs)


_CONVERSIONS = frozenset({"__int__", "__float__", "__index__", "__bool__", "__complex__"})


def _access(tracer: TorchTracer, func: Any, args: tuple[Any, ...]) -> Any:
    """``Tensor.attr.__get__``, ``__set__`` or ``__delete__``: how torch reports attribute access."""
    name = func.__self__.__name__
    match func.__name__:
        case "__get__":
            return tracer.load_attr(args[0], name)
        case "__set__":
            return tracer.store_attr(args[0], name, args[1])
        case _:
            return tracer.delete_attr(args[0], name)
