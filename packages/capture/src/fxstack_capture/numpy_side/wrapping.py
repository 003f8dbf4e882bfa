"""``wrap_numpy``: a function of arrays as one of tensors, with gradients, when it is compiled.

In plain Python the arrays are the tensors' own memory, and NumPy computes: tensors that require grad are refused by
``Tensor.numpy``. Compiled, the arrays are tensors behind NumPy's functions, which autograd and other devices follow.
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
"""What the function is called that ``torch.compiler.wrap_numpy`` makes; the wrapped one is its ``__wrapped__``."""


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes and gives tensors where ``fn`` takes and gives arrays, also inside of containers; a decorator.

    Compiled, it is differentiable, and computes where its tensors are. NumPy scalars that it computes are tensors of no
    dimensions then; in plain Python they stay what they are.

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

    # A frame of the program's: those of this package are never compiled.
    code = wrapped.__code__.replace(co_filename="<string>")
    made = FunctionType(code, {"__name__": "<string>"}, closure=wrapped.__closure__)
    return functools.update_wrapper(made, fn)


def ours(fn: Any) -> Any:
    """The same for what ``torch.compiler.wrap_numpy`` has made, which torch's own compiler alone understands."""
    return wrap_numpy(fn.__wrapped__) if is_torchs(fn) else fn


def is_torchs(fn: object) -> bool:
    return type(fn) is FunctionType and fn.__code__.co_qualname == TORCHS


def to_arrays(values: object) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.numpy, values)


def to_tensors(values: object) -> Any:
    return pytree.tree_map_only(np.ndarray, torch.as_tensor, values)


def traced_to_arrays(trace: Trace, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """The rule of ``to_arrays``: views, so that what comes back is another tensor."""

    def array(tensor: torch.Tensor) -> Array:
        view = trace.torch.call(torch.Tensor.view_as, (tensor, tensor), {})
        made: Array = trace.torch.arrays.from_tensor(view)
        return made

    return _mapped(trace, torch.Tensor, array, args[0])


def traced_to_tensors(trace: Trace, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """The rule of ``to_tensors``, of NumPy's scalars, too."""

    def tensor(array: Array) -> torch.Tensor:
        if array.copied_at is not None:
            trace.torch.arrays.refuse("a tensor over an array that is read-only or backwards")
        return array.tensor

    return _mapped(trace, Array, tensor, args[0])


def _mapped(trace: Trace, kind: type, fn: Callable[[Any], Any], nest: object) -> Any:
    """``tree_map_only``, of containers of the program, too, which are read while they are taken apart."""
    leaves, spec = trace.calls.call(pytree.tree_flatten, (nest,), {})
    leaves = [fn(leaf) if isinstance(leaf, kind) else leaf for leaf in leaves]
    return trace.calls.call(pytree.tree_unflatten, (leaves, spec), {})
