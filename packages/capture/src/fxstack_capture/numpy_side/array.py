"""``Array``: the proxy, while tracing, of a NumPy array, or of a NumPy scalar that was computed from an
array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fxstack_capture.operator_protocol import ARITHMETIC_NAMES, COMPARISON_NAMES, define_methods, function_of
from fxstack_capture.torch_compat import ndarray
from fxstack_capture.trace.protocols import Arrays


class Array:
    """A ``torch._numpy`` array over a tensor of the trace, with a real example array.

    ``owner`` runs the calls. If C code computes with an ``Array``, it calls the operators of the class. Any
    other access by C code breaks the graph. ``example`` has the class, dtype, shape, strides and aliasing of
    NumPy's array; its elements are arbitrary. ``copied_at`` is set if the trace made a copy where NumPy makes
    a view. It is the step of the root frame that made the copy (``Interpreter.root_step``), or None.
    """

    __slots__ = ("__weakref__", "copied_at", "example", "inner", "owner")
    __array_priority__ = 2000.0  # higher than the priority of tensors, so that NumPy calls these methods

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
        """The tensor of the trace with the elements of the array."""
        return self.inner.tensor

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Run a ufunc. NumPy's C code calls this method when the program applies a ufunc to the array."""
        fn = ufunc if method == "__call__" else getattr(ufunc, method)
        return self.owner.call(fn, inputs, kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a NumPy function. C code calls this method when the program applies the function to the array."""
        return self.owner.call(func, args, kwargs)

    def __array__(self, *args: object, **kwargs: object) -> Any:
        """Break the graph, because C code asks for the elements, and only the graph computes them."""
        self.owner.refuse("the elements of an array")

    def __getattr__(self, name: str) -> Any:
        """Break the graph at an attribute that C code reads. Methods that C code only looks for are absent."""
        if name.startswith("__"):
            raise AttributeError(name)
        self.owner.refuse(f"attribute {name} of an array, read by C code,")

    def __iter__(self) -> Any:
        """Return an iterator over the rows."""
        return self.owner.iterate(self)


def _compute(self: Array, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Apply an operator or a builtin function.

    ``define_methods`` makes the operator methods of ``Array`` from this function.
    """
    return self.owner.call(function, operands, {})


def _compute_reflected(self: Array, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Apply an operator with the array as right operand. The left operand has no method for arrays.

    ``operands`` begins with the right operand.
    """
    return self.owner.call(function, operands[::-1], {})


def _text(self: Array, function: Callable[..., str], operands: tuple[Any, ...]) -> str:
    """Return the text of the array. This is the method of ``Array`` for ``str``, ``repr`` and ``format``."""
    return self.owner.text(function, *operands)


_OPERATORS = (
    *(*ARITHMETIC_NAMES, *(f"i{name}" for name in ARITHMETIC_NAMES), *COMPARISON_NAMES),
    *("neg", "pos", "abs", "invert", "index", "getitem", "setitem", "contains"),
)
"""Names of the operators in module ``operator`` that arrays support."""
_BUILTINS = (bool, int, float, complex, len, hash, divmod)
"""Builtin functions that call a special method of their argument's class."""
define_methods(Array, {name: function_of(name) for name in _OPERATORS}, _compute)
define_methods(Array, {fn.__name__: fn for fn in _BUILTINS}, _compute)
define_methods(Array, {f"r{name}": function_of(name) for name in ARITHMETIC_NAMES}, _compute_reflected)
define_methods(Array, {"rdivmod": divmod}, _compute_reflected)
define_methods(Array, {fn.__name__: fn for fn in (str, repr, format)}, _text)
