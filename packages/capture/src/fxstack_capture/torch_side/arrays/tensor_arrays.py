"""Tensors, NumPy arrays and NumPy scalars as arguments and results of torch's functions.

A tensor and an array converted from it share memory, except where torch copies. A NumPy scalar that changes
from call to call becomes a plain number where torch treats it as a number. Elsewhere it becomes a constant.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.operator_protocol import COMPARISONS, function_of
from fxstack_capture.torch_compat import tree_leaves, tree_map
from fxstack_capture.torch_side.numbers import number_tensors
from fxstack_capture.torch_side.numbers.number_tensors import SCALAR_ARGUMENTS
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.numpy_types import NUMBERS, NUMPY_OF, SCALAR_TYPES, TORCH_OF
from fxstack_capture.trace.state import Args, Kwargs


@calls_program
def array_of(tracer: TracerProtocol, tensor: torch.Tensor, *, force: bool) -> Array:
    """Record ``tensor.numpy(force=force)``. Raises torch's exception for a tensor that requires grad."""
    if torch_compat.is_functorch_wrapped_tensor(tensor):
        raise graph_break("unsupported-call", "Tensor.numpy under a torch.func transform")
    if force:
        for plain in (torch.Tensor.detach, torch.Tensor.resolve_conj, torch.Tensor.resolve_neg):
            tensor = tracer.record(plain, (tensor,), {})
    with tracer.unrecorded():
        if tensor.requires_grad:
            torch.empty(0, requires_grad=True).numpy()  # raises torch's error
        fits = tensor.dtype in NUMPY_OF and not tensor.is_conj() and not tensor.is_neg()
        fits = fits and tensor.device.type == "cpu" and tensor.layout is torch.strided
    if not fits:
        raise graph_break("unsupported-call", "Tensor.numpy of a tensor that NumPy cannot hold")
    array: Array = tracer.arrays.from_tensor(tensor)
    return array


def to_numpy(tracer: TracerProtocol, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``Tensor.numpy``. Break the graph for arguments other than ``force``."""
    if isinstance(getattr(fn, "__self__", None), torch.Tensor):
        args = (fn.__self__, *args)
    if len(args) != 1 or kwargs.keys() - {"force"}:
        raise graph_break("unsupported-call", "Tensor.numpy with unusual arguments")
    return array_of(tracer, args[0], force=bool(kwargs.get("force", False)))


@calls_program
def from_numpy(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``torch.from_numpy``. The result shares the memory of the array."""
    if len(args) != 1 or kwargs or type(args[0]) is not Array:
        return fn(*args, **kwargs)  # raises torch's error
    return tracer.arrays.to_tensor(args[0])


_DEFERS_TO_TENSORS = frozenset(COMPARISONS) | {
    function_of(f"{prefix}{name}")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
    for prefix in ("", "i")
}
"""Operators of NumPy scalars that return NotImplemented if the right operand is a tensor. The tensor then
computes.
"""

_CHECKS_FOR_INT = frozenset(
    {torch.split, torch.Tensor.split, torch.tensordot, torch.norm, torch.Tensor.norm} | {torch.unravel_index}
)
"""Python functions that test whether an argument is an int."""


def with_plain_scalars(fn: object, args: Args) -> tuple[Any, ...]:
    """Return the arguments of an operator. NumPy scalars are replaced by plain numbers, as in torch."""
    # For a function that is no operator, the first argument stays, because its dtype may matter.
    if fn in _CHECKS_FOR_INT:
        return args
    if NUMBERS.isdisjoint(map(type, args)) or _is_refused(fn, args):
        return args
    if type(args[0]) in NUMBERS and fn not in _DEFERS_TO_TENSORS:
        return args
    return tuple(arg.item() if type(arg) in NUMBERS else arg for arg in args)


def takes_number(fn: object, args: Args, position: int) -> bool:
    """Return whether torch treats the NumPy scalar at ``position`` like its plain number."""
    if type(args[position]) not in NUMBERS or _is_refused(fn, args) or fn in _CHECKS_FOR_INT:
        return False
    return fn in _DEFERS_TO_TENSORS or (position > 0 and type(args[0]) not in NUMBERS)


def demand_same(
    tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs, result: object
) -> None:
    """Break the graph if plain numbers in the graph would give another result than the NumPy scalars."""
    tracer.builder.holds_scalars = False
    if any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((args, kwargs))):
        if args and type(args[0]) in NUMBERS:
            raise graph_break("unsupported-call", "a NumPy scalar as the first argument")
        return
    if not isinstance(result, torch.Tensor):
        return
    plain = tree_map(lambda leaf: leaf.item() if type(leaf) in NUMBERS else leaf, (args, kwargs))
    with tracer.mode, tracer.unrecorded():
        other = fn(*plain[0], **plain[1])
        if (other.dtype, other.shape) != (result.dtype, result.shape):
            raise graph_break("unsupported-call", "a NumPy scalar whose class counts")


def _is_refused(fn: object, args: Args) -> bool:
    """Return whether torch raises an error for a scalar. A tensor accepts only integers and scalars that are
    Python floats.
    """
    return fn is operator.setitem and isinstance(args[2], (np.float32, np.float16))


def _record_copy(tracer: TracerProtocol, array: Array, kwargs: Kwargs) -> torch.Tensor:
    """Record a new contiguous tensor. ``kwargs`` may have ``dtype`` and ``device``."""
    copy = tracer.record(torch.Tensor.clone, (array.tensor,), {"memory_format": torch.contiguous_format})
    plain = {name: value for name, value in kwargs.items() if value is not None}
    return tracer.record(torch.Tensor.to, (copy,), plain) if plain else copy


def _like_tensor(tracer: TracerProtocol, array: Array, kwargs: Kwargs) -> Any:
    """Record ``torch.tensor``, which always copies."""
    options = dict(kwargs)
    requires_grad = options.pop("requires_grad", False)
    copy = _record_copy(tracer, array, options)
    if requires_grad:
        return tracer.call(torch.Tensor.requires_grad_, (copy,), {})
    return copy


def _as_tensor(tracer: TracerProtocol, array: Array, kwargs: Kwargs) -> Any:
    """Record ``torch.as_tensor``. The result shares the memory if the dtype and device allow it."""
    dtype, device = kwargs.get("dtype"), kwargs.get("device")
    plain = device is None or torch.device(device).type == "cpu"
    same = plain and (dtype is None or dtype == array.tensor.dtype)
    if same and isinstance(array.example, np.ndarray):
        return tracer.arrays.to_tensor(array)
    return _record_copy(tracer, array, kwargs)


def conversion(
    on_array: Callable[[TracerProtocol, Array, dict[str, Any]], Any],
) -> Callable[[TracerProtocol, Any, tuple[Any, ...], dict[str, Any]], Any]:
    """Return the rule of a function that converts arrays and other values to tensors."""

    def rule(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Convert an array by ``on_array``, and a scalar or plain number by the dtype rules of torch."""
        if len(args) == 1 and type(args[0]) is Array:
            return on_array(tracer, args[0], kwargs)
        if len(args) == 1 and isinstance(args[0], torch.SymBool):
            args = (tracer.specialize(args[0]),)
        if len(args) == 1 and type(args[0]) in SCALAR_TYPES and kwargs.get("dtype") is None:
            kwargs = {**kwargs, "dtype": TORCH_OF[args[0].dtype]}
            args = (args[0].item(),)
        if len(args) == 1 and number_tensors.can_make(args[0], kwargs):
            return number_tensors.make(tracer, args[0], kwargs)
        if tracer.arrays.active and kwargs.get("dtype") is None:
            # torch has NumPy's default dtypes only while a function of ``torch._numpy`` runs, which is not
            # the case in the graph.
            with tracer.unrecorded():
                kwargs = {**kwargs, "dtype": fn(*args, **kwargs).dtype}
        return tracer.record(fn, args, kwargs)

    return rule


tensor = conversion(_like_tensor)
as_tensor = conversion(_as_tensor)

_INDEXING = frozenset({operator.getitem, operator.setitem, operator.delitem})
_MAKING_TENSORS = (torch.tensor, torch.as_tensor)
_PLAIN = (np.float64, np.int64)
_CONTENTS = frozenset({"data", "obj", "input", "self"})
"""Parameters for which the dtype of a scalar matters."""


def for_call(fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a torch call. Each ``Scalar`` is replaced by a plain number or a constant.

    If the trace has scalars, the tracer calls this before each call.
    """
    # torch treats a float64 or int64 as keyword argument like a plain number.
    if _is_of_program(fn):
        return tuple(map(_constant, args)), {name: _constant(v) for name, v in kwargs.items()}
    named = {
        name: value.item() if type(value) is Scalar and _is_number(value, name) else _constant(value)
        for name, value in kwargs.items()
    }
    if fn in _MAKING_TENSORS and len(args) == 1 and type(args[0]) is Scalar:
        dtype = named.get("dtype") or TORCH_OF[args[0].example.dtype]
        if dtype.is_floating_point or dtype == TORCH_OF[args[0].example.dtype]:
            return (args[0].item(),), {**named, "dtype": dtype}
    return operands(fn, args), named


def _is_number(value: Scalar, name: str) -> bool:
    """Return whether torch treats the scalar, passed as keyword argument ``name``, like its plain number."""
    kind = type(value.example)
    return kind in NUMBERS if name in SCALAR_ARGUMENTS else kind in _PLAIN and name not in _CONTENTS


def _is_of_program(fn: Callable[..., Any]) -> bool:
    """Return whether code of the program gets the arguments. Such code may read the class of a scalar."""
    code = getattr(fn, "__func__", fn)
    if code is torch_compat.FUNCTION_APPLY:
        return True
    return type(code) is FunctionType and not (code.__module__ or "").startswith("torch.")


def operands(fn: Callable[..., Any], args: Args) -> tuple[Any, ...]:
    """Return the positional arguments of a call. A (symbolic or plain) number replaces each ``Scalar``."""
    if not any(map(_holds, args)):
        return args
    examples = tuple(v.example if type(v) is Scalar else v for v in args)
    within = _index if fn in _INDEXING else _constant
    return tuple(
        value.item() if type(value) is Scalar and takes_number(fn, examples, position) else within(value)
        for position, value in enumerate(args)
    )


def _index(value: object) -> Any:
    """Return an index, with integer ``Scalar`` objects replaced by plain numbers. This includes the bounds of
    slices.
    """
    if type(value) is Scalar and isinstance(value.example, np.integer):
        return value.item()
    return _rebuild(value, _index)


def _constant(value: object) -> Any:
    """Return ``value``, with each ``Scalar`` replaced by its number. The numbers are guarded."""
    return _rebuild(value, _constant)


def _rebuild(value: Any, each: Callable[[Any], Any]) -> Any:
    """Return a container with ``each`` applied to its items. A scalar becomes a constant with a guard."""
    if type(value) is Scalar:
        return value.settle()
    if not _holds(value):
        return value
    if type(value) is dict:
        return {name: each(item) for name, item in value.items()}
    if type(value) is slice:
        return slice(each(value.start), each(value.stop), each(value.step))
    return type(value)(each(item) for item in value)


def _holds(value: Any) -> bool:
    """Return whether a value contains a ``Scalar``."""
    if type(value) in (list, tuple, torch.Size):
        return any(map(_holds, value))
    if type(value) is dict:
        return any(map(_holds, value.values()))
    if type(value) is slice:
        return any(map(_holds, (value.start, value.stop, value.step)))
    return type(value) is Scalar
