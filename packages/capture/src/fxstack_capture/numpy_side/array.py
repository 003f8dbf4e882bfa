"""``Array``: what stands for a NumPy array, or for a NumPy scalar computed from one, while tracing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

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


def _unary(op: Callable[[Any], Any]) -> Any:
    def method(self: Array) -> Any:
        return self.owner.call(op, (self,), {})

    return method


def _binary(op: Callable[[Any, Any], Any]) -> Any:
    def method(self: Array, other: object) -> Any:
        return self.owner.call(op, (self, other), {})

    return method


def _reflected(op: Callable[[Any, Any], Any]) -> Any:
    def method(self: Array, other: object) -> Any:
        return self.owner.call(op, (other, self), {})

    return method


def _setitem(self: Array, key: object, value: object) -> None:
    self.owner.call(operator.setitem, (self, key, value), {})


ARITHMETIC = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("lshift", "rshift", "and", "or", "xor"),
)
_COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")
_UNARY = ("neg", "pos", "abs", "invert")


def _of_operator(name: str) -> Callable[..., Any]:
    fn: Callable[..., Any] = getattr(operator, f"__{name}__")
    return fn


for _name in ARITHMETIC:
    setattr(Array, f"__{_name}__", _binary(_of_operator(_name)))
    setattr(Array, f"__r{_name}__", _reflected(_of_operator(_name)))
    setattr(Array, f"__i{_name}__", _binary(_of_operator(f"i{_name}")))
for _name in _COMPARISONS:
    setattr(Array, f"__{_name}__", _binary(_of_operator(_name)))
for _name in _UNARY:
    setattr(Array, f"__{_name}__", _unary(_of_operator(_name)))
for _fn in (bool, int, float, complex, len, operator.index, hash):
    setattr(Array, f"__{_fn.__name__}__", _unary(_fn))
for _name, _method in (
    ("getitem", _binary(operator.getitem)),
    ("setitem", _setitem),
    ("contains", _binary(operator.contains)),
    ("divmod", _binary(divmod)),
    ("rdivmod", _reflected(divmod)),
):
    setattr(Array, f"__{_name}__", _method)
