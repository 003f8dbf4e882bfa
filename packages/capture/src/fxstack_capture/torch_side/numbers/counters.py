"""Numbers in small CPU tensors that guards can read, for example the step counts of optimizers.

An optimizer adds one to a tensor, reads its number, and branches on the number. The number is the value of
the tensor at the start of the call, which a guard may read, plus the additions in the graph. Therefore
tracing knows the number, as it knows any other argument.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.guards.records import Equals, TypeIs
from fxstack_capture.shapes.geometry import can_be_symbolic
from fxstack_capture.shapes.policy import is_static
from fxstack_capture.sources import Converted, Key, Source
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args

_EXACT = {torch.float32: 2.0**24, torch.float64: 2.0**53}
"""Maps a dtype to the limit below which it represents all integers exactly."""

_IS_WHOLE: Callable[[Any], bool] = float.is_integer


class Counters:
    """Known numbers in CPU tensors with one element, by storage.

    The tracer records each constructor and each write. Where the program reads a tensor as a number, the
    tracer asks ``number``.
    """

    def __init__(self, tracer: TracerProtocol) -> None:
        self._tracer = tracer
        self._added: dict[int, float] = {}
        """Maps a storage to the sum of the additions to its number. NaN after any other write."""
        self._constructed: dict[int, float] = {}
        """Maps a storage to the number that the constructor of its tensor stored."""
        self._read: dict[int, Any] = {}
        self._exact: dict[tuple[int, torch.dtype], Any] = {}
        """The numbers, by identity and dtype, that guards keep in the range where additions are exact."""
        self._shared: dict[tuple[str, float], Any] = {}
        """Maps a dictionary's key and a value to the symbol of the first tensor with this value under this key."""

    def note_made(self, target: object, args: Args, result: Any) -> None:
        """Record a call. If it is a constructor such as ``torch.tensor(0)``, the number of its result is
        known.
        """
        value_in = _MAKERS.get(target) if isinstance(result, torch.Tensor) else None
        if value_in is not None and _is_small(result) and not result.is_complex():
            value = value_in(args)
            if type(value) in (int, float):
                self._constructed[result.untyped_storage()._cdata] = float(value)

    def note_changed(self, tensor: torch.Tensor, added: float | None) -> None:
        """Record a write to ``tensor``. ``added`` is the number that the write adds. None for any other
        write.
        """
        key = tensor.untyped_storage()._cdata
        before = self._added.get(key, 0.0)
        if added is None or not _is_small(tensor):
            self._added[key] = math.nan
        else:
            self._added[key] = before + added

    def number(self, tensor: torch.Tensor) -> Any:
        """Return the current number in ``tensor``. None if tracing does not know it."""
        if not _is_small(tensor) or tensor.dtype not in _EXACT:
            return None
        added = self._added.get(tensor.untyped_storage()._cdata, 0.0)
        if math.isnan(added):
            return None
        start = self._initial_number(tensor, counting=added != 0)
        return None if start is None else start + added if added else start

    def _initial_number(self, tensor: torch.Tensor, *, counting: bool) -> Any:
        """Return the number that the tensor had before the additions of the graph, or None.

        ``counting``: the graph has added to the number. Guards then make sure that the sum is exact in the
        dtype.
        """
        key = tensor.untyped_storage()._cdata
        if key in self._constructed:
            return self._constructed[key]
        if key not in self._read:
            self._read[key] = self._read_input(tensor, counting=counting)
        value, real, source = self._read[key]
        if counting and value is not None:
            if not real.is_integer() or abs(real) >= _EXACT[tensor.dtype] / 2:
                return None
            self._tracer.trace.guard(Converted(source, _IS_WHOLE), Equals(True))
            self._demand_exact(value, tensor.dtype)
        return value

    def _demand_exact(self, value: Any, dtype: torch.dtype) -> None:
        """Guard that additions to ``value`` are exact, once for numbers that share a symbol."""
        if (id(value), dtype) not in self._exact:
            self._exact[id(value), dtype] = value
            bool(value < _EXACT[dtype] / 2)  # records a guard
            bool(value > -_EXACT[dtype] / 2)

    def _read_input(self, tensor: torch.Tensor, *, counting: bool) -> tuple[Any, float, Any]:
        """Read the number of an input tensor. Return it as a constant or symbol, with its value and its
        source.

        A zero to which the graph has added may be a symbol: its sign does not matter.
        """
        tracer = self._tracer
        original, tensor_source = tracer.original_of(tensor)
        if original is None or tensor_source is None:
            return None, 0.0, None
        tracer.builder.demand_present(tensor)
        source = Converted(tensor_source, torch.Tensor.item)
        with tracer.unrecorded():
            real = original.item()
        if not (can_be_symbolic(real) or (counting and real == 0)) or is_static(tracer.trace.options):
            tracer.trace.guard(source, Equals(real))
            return real, real, source
        tracer.trace.guard(source, TypeIs(float))
        return self._symbol(real, source, tensor_source), real, source

    def _symbol(self, real: float, source: Source, tensor_source: Source) -> Any:
        """Return a symbol for a number. Numbers under one key of several dictionaries have one symbol if they are equal.

        The steps of an optimizer's parameters are such numbers: what follows from the step is then traced, computed
        and guarded once, and not for each parameter. The guard of the shared symbol demands that they are equal.
        """
        # A key of another class may run code of the program to compare itself.
        name = tensor_source.key if isinstance(tensor_source, Key) else None
        key = (name, real) if type(name) is str else None
        number = self._shared.get(key) if key else None
        if number is not None:
            return self._tracer.geometry.share(number, source)
        number = self._tracer.geometry.real_number(real, source)
        if key:
            self._shared[key] = number
        return number


def _is_small(tensor: torch.Tensor) -> bool:
    """Return whether a tensor in host memory has a single number that fills its storage."""
    return (
        tensor.dim() == 0
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.untyped_storage().nbytes() == tensor.element_size()
    )


def additions(target: object, args: Args, kwargs: object) -> dict[int, float]:
    """Return the integer that the call adds to each tensor: id of the tensor -> integer."""
    if target not in _ADDERS or kwargs or len(args) != 2 or not _is_whole(args[1]):
        return {}
    tensors = args[0] if isinstance(args[0], (list, tuple)) else (args[0],)
    return {id(tensor): float(args[1]) for tensor in tensors}


def _is_whole(value: object) -> bool:
    """Return whether a number has an integer value (2 or 2.0). Repeated additions are then exact."""
    return type(value) is int or (type(value) is float and value.is_integer())


_ADDERS = frozenset({operator.iadd, "add_", "__iadd__", torch_compat.foreach_add_})


def _first(args: Args) -> Any:
    """Return the only positional argument of a constructor. None if there are more."""
    return args[0] if len(args) == 1 else None


_MAKERS: dict[Any, Callable[[tuple[Any, ...]], Any]] = {
    torch.tensor: _first,
    torch.as_tensor: _first,
    torch.zeros: lambda _args: 0,
    torch.ones: lambda _args: 1,
}
