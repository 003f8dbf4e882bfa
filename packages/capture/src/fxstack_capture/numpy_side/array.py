"""``Array``: the proxy of a NumPy array, or of a NumPy scalar computed from an array, while tracing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fxstack_capture.operator_protocol import ARITHMETIC_NAMES, COMPARISON_NAMES, define_methods, function_of
from fxstack_capture.torch_compat import ndarray
from fxstack_capture.trace.protocols import Arrays


class Array:
    """A ``torch._numpy`` array over a tensor of the trace, and a real example array.

    ``owner`` runs the calls. C code that computes with an ``Array`` calls the operators of the class. Any other
    access by C code breaks the graph. ``example`` has the class, dtype, shape, strides and aliasing of NumPy's
    array; its elements are arbitrary. ``copied_at`` is the step of the root frame (``Interpreter.root_step``) that
    made a copy where NumPy makes a view, or None.
    """

    __slots__ = ("__weakref__", "copied_at", "example", "inner", "owner")
    __array_priority__ = 2000.0  # higher than the priority of tensors

    def __init__(
        self,
        owner: Arrays,
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
        """The tensor of the trace that holds the elements."""
        return self.inner.tensor

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Handle a ufunc that NumPy's C code calls on the array."""
        fn = ufunc if method == "__call__" else getattr(ufunc, method)
        return self.owner.call(fn, inputs, kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Handle a NumPy function that C code calls on the array."""
        return self.owner.call(func, args, kwargs)

    def __array__(self, *args: object, **kwargs: object) -> Any:
        """Break the graph. C code asks for the elements, which only the graph computes."""
        self.owner.refuse("the elements of an array")

    def __getattr__(self, name: str) -> Any:
        """Refuse an attribute that C code reads. Methods that C code looks for are absent."""
        if name.startswith("__"):
            raise AttributeError(name)
        self.owner.refuse(f"attribute {name} of an array, read by C code,")

    def __iter__(self) -> Any:
        """Return an iterator over the rows."""
        return self.owner.iterate(self)


def _compute(self: Array, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Apply an operator or a builtin function.

    ``define_methods`` makes the methods of ``Array`` from this function.
    """
    return self.owner.call(function, operands, {})


def _compute_reflected(self: Array, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Apply an operator whose left operand has no method for arrays. ``operands`` begins with the right operand."""
    return self.owner.call(function, operands[::-1], {})


def _text(self: Array, function: Callable[..., str], operands: tuple[Any, ...]) -> str:
    """Return the text of the array: the method of ``Array`` for ``str``, ``repr`` and ``format``."""
    return self.owner.text(function, *operands)


_OPERATORS = (
    *(*ARITHMETIC_NAMES, *(f"i{name}" for name in ARITHMETIC_NAMES), *COMPARISON_NAMES),
    *("neg", "pos", "abs", "invert", "index", "getitem", "setitem", "contains"),
)
"""Names of the operators in module ``operator`` that arrays support."""
_BUILTINS = (bool, int, float, complex, len, hash, divmod)
"""Builtin functions that call a method of the class of their argument."""
define_methods(Array, {name: function_of(name) for name in _OPERATORS}, _compute)
define_methods(Array, {fn.__name__: fn for fn in _BUILTINS}, _compute)
define_methods(Array, {f"r{name}": function_of(name) for name in ARITHMETIC_NAMES}, _compute_reflected)
define_methods(Array, {"rdivmod": divmod}, _compute_reflected)
define_methods(Array, {fn.__name__: fn for fn in (str, repr, format)}, _text)
