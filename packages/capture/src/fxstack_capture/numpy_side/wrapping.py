"""``wrap_numpy``: a function of arrays as a function of tensors, with gradients when compiled.

In plain Python, the arrays share the memory of the tensors, and NumPy computes. ``Tensor.numpy`` raises for a
tensor that requires grad. In compiled code, the arrays are proxies of tensors. Therefore autograd and other
devices work.
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

Its ``__wrapped__`` is the original function.
"""


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate ``fn``, a function of NumPy arrays, as a function of tensors. The tensors may be in
    containers.

    The compiled function is differentiable, and computes on the device of its tensors. The function's NumPy
    scalars are tensors without dimensions there. In plain Python, they stay NumPy scalars.

    Raises:
        TypeError: ``fn`` is not callable.
        RuntimeError: a tensor requires grad, in plain Python (raised by ``Tensor.numpy``).
    """
    if not callable(fn):
        raise TypeError(f"wrap_numpy: expected a function, got {fn!r}")
    arrays, tensors = to_arrays, to_tensors

    def wrapped(*args: object, **kwargs: object) -> Any:
        args, kwargs = arrays((args, kwargs))
        return tensors(fn(*args, **kwargs))

    # The function looks like a function of the program. Frames of this package would never be compiled.
    code = wrapped.__code__.replace(co_filename="<string>")
    function = FunctionType(code, {"__name__": "<string>"}, closure=wrapped.__closure__)
    return functools.update_wrapper(function, fn)


def ours(fn: Any) -> Any:
    """Return this package's wrapper if ``fn`` is the wrapper of ``torch.compiler.wrap_numpy``. Otherwise
    return ``fn``.

    Only torch's compiler supports the wrapper of torch.
    """
    return wrap_numpy(fn.__wrapped__) if is_torchs(fn) else fn


def is_torchs(fn: object) -> bool:
    """Whether ``torch.compiler.wrap_numpy`` returned ``fn``."""
    return type(fn) is FunctionType and fn.__code__.co_qualname == TORCHS


def to_arrays(values: object) -> Any:
    """Return ``values``, a container. Each tensor is replaced by an array that shares its memory.

    Raises RuntimeError for a tensor that requires grad.
    """
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.numpy, values)


def to_tensors(values: object) -> Any:
    """Return ``values``, a container. Each array is replaced by a tensor that shares its memory."""
    return pytree.tree_map_only(np.ndarray, torch.as_tensor, values)


def traced_to_arrays(trace: Trace, _fn: object, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """Replace the tensors in a container by arrays, in a trace. This is the rule of ``to_arrays``.

    The arrays are views, so that a returned array gives a new tensor.
    """

    def array(tensor: torch.Tensor) -> Array:
        """Return the array over a view of ``tensor``."""
        view = trace.torch.call(torch.Tensor.view_as, (tensor, tensor), {})
        converted: Array = trace.torch.arrays.from_tensor(view)
        return converted

    return _map_leaves(trace, torch.Tensor, array, args[0])


def traced_to_tensors(trace: Trace, _fn: object, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """Replace the arrays in a container by tensors, in a trace. This is the rule of ``to_tensors``.

    NumPy scalars also become tensors.
    """

    def tensor(array: Array) -> torch.Tensor:
        """Return the tensor of ``array``.

        Raises GraphBreak for an array with negative strides, because no tensor can share its memory.
        """
        if array.copied_at is not None:
            trace.torch.arrays.refuse("a tensor over an array that is backwards")
        return array.tensor

    return _map_leaves(trace, Array, tensor, args[0])


def _map_leaves(trace: Trace, kind: type, fn: Callable[[Any], Any], container: object) -> Any:
    """Return ``container`` with ``fn`` applied to its leaves of class ``kind``, as ``tree_map_only`` does.

    If the program has registered containers of its own, the interpreter runs their flatten functions.
    """
    leaves, spec = trace.calls.call(pytree.tree_flatten, (container,), {})
    leaves = [fn(leaf) if isinstance(leaf, kind) else leaf for leaf in leaves]
    return trace.calls.call(pytree.tree_unflatten, (leaves, spec), {})
