"""``Array``: what stands for a NumPy array, or for a NumPy scalar computed from one, while tracing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from fxstack_capture.operator_protocol import ARITHMETIC_NAMES, COMPARISON_NAMES, define_methods, function_of
from fxstack_capture.torch_compat import ndarray
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.parts import Arrays


class ArrayOwner(Arrays, Protocol):
    """What an array uses of the part of the trace that owns it."""

    @property
    def tracer(self) -> TracerProtocol: ...

    def run(self, pair: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call NumPy's function by way of its counterpart on tensors."""


class Array:
    """A tensor of the trace behind ``torch._numpy``'s array, and a real array like it.

    ``example`` has the class, dtype, shape, strides and aliasing that NumPy gives, and contents that mean nothing.
    ``copied_at`` is the step of the root frame that made a copy where NumPy makes a view, if one did.
    C code that computes with an ``Array`` finds its operators; whatever else it wants ends the graph.
    """

    __slots__ = ("__weakref__", "copied_at", "example", "inner", "owner")
    __array_priority__ = 2000.0  # before tensors

    def __init__(
        self,
        owner: ArrayOwner,
        inner: ndarray,
        example: np.ndarray[Any, Any] | np.generic,
        copied_at: int | None = None,
    ) -> None:
        self.owner = owner
        self.inner = inner
        self.example = example
        self.copied_at = copied_at

    @property
    def tensor(self) -> torch.Tensor:
        """The trace tensor that holds the elements."""
        return self.inner.tensor

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's C code calls a ufunc on this."""
        fn = ufunc if method == "__call__" else getattr(ufunc, method)
        return self.owner.call(fn, inputs, kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """NumPy's C code calls one of its functions on this."""
        return self.owner.call(func, args, kwargs)

    def __array__(self, *args: object, **kwargs: object) -> Any:
        self.owner.refuse("the elements of an array")

    def __iter__(self) -> Any:
        return self.owner.iterate(self)


def _compute(self: Array, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    return self.owner.call(function, operands, {})


def _compute_reflected(self: Array, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    return self.owner.call(function, operands[::-1], {})


_OPERATORS = (
    *(*ARITHMETIC_NAMES, *(f"i{name}" for name in ARITHMETIC_NAMES), *COMPARISON_NAMES),
    *("neg", "pos", "abs", "invert", "index", "getitem", "setitem", "contains"),
)
_BUILTINS = (bool, int, float, complex, len, hash, divmod)
define_methods(Array, {name: function_of(name) for name in _OPERATORS}, _compute)
define_methods(Array, {fn.__name__: fn for fn in _BUILTINS}, _compute)
define_methods(Array, {f"r{name}": function_of(name) for name in ARITHMETIC_NAMES}, _compute_reflected)
define_methods(Array, {"rdivmod": divmod}, _compute_reflected)
