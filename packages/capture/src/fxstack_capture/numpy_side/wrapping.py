"""``wrap_numpy``: a function of arrays as a function of tensors, with gradients when compiled.

In plain Python the arrays share the memory of the tensors, and NumPy computes. ``Tensor.numpy`` raises for a
tensor that requires grad. In compiled code the arrays are tensors behind NumPy's functions, so autograd and
other devices work.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import torch

from fxstack_capture.numpy_side.array import Array
from fxstack_capture.torch_compat import pytree
from fxstack_capture.trace.state import Trace

TORCHS = "wrap_numpy.<locals>.wrap"
"""The qualified name of a function that ``torch.compiler.wrap_numpy`` returns.

``__wrapped__`` is the original.
"""


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate ``fn``, a function of NumPy arrays, as a function of tensors (also in containers).

    The compiled function is differentiable, and computes on the device of its tensors. There, NumPy scalars
    of the function are tensors without dimensions. In plain Python, they stay NumPy scalars.

    Raises:
        TypeError: ``fn`` is not callable.
        RuntimeError: a tensor that requires grad, in plain Python (from ``Tensor.numpy``).
    """
    if not callable(fn):
        raise TypeError(f"wrap_numpy: expected a function, got {fn!r}")
    arrays, tensors = to_arrays, to_tensors

    def wrapped(*args: object, **kwargs: object) -> Any:
        args, kwargs = arrays((args, kwargs))
        return tensors(fn(*args, **kwargs))

    # The function looks like a function of the program, because frames of this package are never compiled.
    code = wrapped.__code__.replace(co_filename="<string>")
    function = FunctionType(code, {"__name__": "<string>"}, closure=wrapped.__closure__)
    return functools.update_wrapper(function, fn)


def ours(fn: Any) -> Any:
    """Return ``wrap_numpy`` of the original function if ``torch.compiler.wrap_numpy`` returned ``fn``; else ``fn``.

    Only torch's compiler supports the wrapper of torch.
    """
    return wrap_numpy(fn.__wrapped__) if is_torchs(fn) else fn


def is_torchs(fn: object) -> bool:
    """Whether ``torch.compiler.wrap_numpy`` returned ``fn``."""
    return type(fn) is FunctionType and fn.__code__.co_qualname == TORCHS


def to_arrays(values: object) -> Any:
    """Return ``values``, a container, with each tensor replaced by the array over its memory.

    Raises RuntimeError for a tensor that requires grad.
    """
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.numpy, values)


def to_tensors(values: object) -> Any:
    """Return ``values``, a container, with each array replaced by a tensor over its memory."""
    return pytree.tree_map_only(np.ndarray, torch.as_tensor, values)


def traced_to_arrays(trace: Trace, _fn: object, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """Replace the tensors in a container by arrays in a trace.

    The rule of ``to_arrays``. The arrays are views, so that a returned array gives a new tensor.
    """

    def array(tensor: torch.Tensor) -> Array:
        """Return the array over a view of ``tensor``."""
        view = trace.torch.call(torch.Tensor.view_as, (tensor, tensor), {})
        converted: Array = trace.torch.arrays.from_tensor(view)
        return converted

    return _map_leaves(trace, torch.Tensor, array, args[0])


def traced_to_tensors(trace: Trace, _fn: object, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """Replace the arrays in a container by tensors in a trace.

    The rule of ``to_tensors``. NumPy scalars become tensors, too.
    """

    def tensor(array: Array) -> torch.Tensor:
        """Return the tensor of ``array``.

        Raises GraphBreak for an array that is backwards, which no tensor can share.
        """
        if array.copied_at is not None:
            trace.torch.arrays.refuse("a tensor over an array that is backwards")
        return array.tensor

    return _map_leaves(trace, Array, tensor, args[0])


def _map_leaves(trace: Trace, kind: type, fn: Callable[[Any], Any], container: object) -> Any:
    """Return ``container`` with ``fn`` applied to its leaves of class ``kind``, as ``tree_map_only`` does.

    The interpreter flattens the program's own containers, too.
    """
    leaves, spec = trace.calls.call(pytree.tree_flatten, (container,), {})
    leaves = [fn(leaf) if isinstance(leaf, kind) else leaf for leaf in leaves]
    return trace.calls.call(pytree.tree_unflatten, (leaves, spec), {})
