"""``min``, ``max`` and ``bool`` of unbacked numbers, and of tensors of one element, without a branch.

The graph selects the smaller or larger value. Tracing need not know which of the two it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from fxstack_capture.breaks import graph_break
from fxstack_capture.shapes.symbolic.exact_comparisons import EXACT
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.recording.protocol import TracerProtocol

_COMPARE: dict[Any, Any] = {max: torch.gt, min: torch.lt}


def extremum(tracer: TracerProtocol, fn: Callable[..., Any], first: object, second: object) -> Any:
    """Return ``min`` or ``max`` as Python does: the second number if ``<`` or ``>`` holds, otherwise the
    first.

    This is also correct for NaN. The graph compares in float64, as Python does. Return ``NotImplemented`` if
    Python can compare the numbers while tracing, or if the graph cannot select from them.
    """
    if isinstance(first, torch.Tensor) or isinstance(second, torch.Tensor):
        return _tensor_extremum(tracer, fn, first, second)
    if _is_whole(first) and _is_whole(second) and (_is_open(first) or _is_open(second)):
        return _SYMBOLIC[fn](first, second)
    # the result may be a float in place of an integer; the alternative would be an error
    if tracer.trace.options.fullgraph:
        first, second = _as_floats(first, second)
    if not (_is_float(first) and _is_float(second) and (_is_open(first) or _is_open(second))):
        return NotImplemented
    options = {"dtype": torch.float64, "device": torch.device("cpu")}
    pair = [tracer.record(torch.scalar_tensor, (number,), options) for number in (first, second)]
    better = tracer.record(_COMPARE[fn], (pair[1], pair[0]), {})
    chosen = tracer.record(torch.where, (better, pair[1], pair[0]), {})
    return tracer.number_in(chosen)


def _as_floats(first: object, second: object) -> tuple[object, object]:
    """Return both numbers. If one is an unknown float, an integer is converted to a float of the same value."""
    pair = [first, second]
    for at, number in enumerate(pair):
        other = pair[1 - at]
        if type(number) is int and abs(number) <= EXACT and _is_float(other) and _is_open(other):
            pair[at] = float(number)
    return pair[0], pair[1]


def _is_float(number: object) -> bool:
    """Return whether a plain or symbolic number is a float."""
    return type(number) in (float, torch.SymFloat)


def _is_whole(number: object) -> bool:
    """Return whether a plain or symbolic number is an integer."""
    return type(number) in (int, torch.SymInt)


def _is_open(number: object) -> bool:
    """Return whether the number is symbolic with a value that tracing does not know."""
    return isinstance(number, (torch.SymInt, torch.SymFloat)) and not number.node.has_hint()


_SYMBOLIC: dict[Any, Callable[..., Any]] = {max: torch.sym_max, min: torch.sym_min}


def open_truth(tracer: TracerProtocol, value: Any) -> torch.SymBool | None:
    """Return ``bool(value)`` as a symbol, for an unbacked number or a tensor of one element. None for any
    other value.
    """
    if not tracer.assumptions.captures_numbers:
        return None
    if type(value) is FakeTensor and all(type(n) is int and n == 1 for n in value.shape):
        value = tracer.number_in(value)
    if not isinstance(value, _NUMBERS) or value.node.has_hint():
        return None
    truth = value if isinstance(value, torch.SymBool) else value != 0
    return None if truth.node.expr in (sympy.true, sympy.false) else truth


_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def decided(tracer: TracerProtocol, truth: torch.SymBool) -> Any:
    """Return the current bool of ``truth``, with a guard. If no guard can decide it, return ``truth``."""
    node = truth.node
    if not node.has_hint() or tracer.geometry.env.depends_on_drawn(node.expr):
        return truth
    return specialized(tracer, truth)


def specialized(tracer: TracerProtocol, value: Any) -> Any:
    """Return the current plain number of a symbolic number, with a guard. Any other value is returned
    unchanged. Break the graph if the number depends on tensor data.
    """
    convert = _PLAIN.get(type(value))
    if convert is None:
        return value
    try:
        return convert(value)
    except GuardOnDataDependentSymNode as error:
        text = tracer.geometry.env.origin_of(value.node.expr)
        raise graph_break("data-dependent-branch", text) from error


_PLAIN = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}

_BETTER: dict[Any, Callable[..., Any]] = {max: operator.gt, min: operator.lt}
_REAL = (int, torch.SymInt, float, torch.SymFloat)


def _takes(tracer: TracerProtocol, first: object, second: object) -> bool:
    """Return whether the graph can select from these two operands."""
    tensors = [value for value in (first, second) if isinstance(value, torch.Tensor)]
    if not tracer.trace.options.fullgraph or not all(_is_plain(tracer, tensor) for tensor in tensors):
        return False
    if len(tensors) == 1:
        number = second if first is tensors[0] else first
        alone: bool = tensors[0].dim() == 0
        return alone and _holds(tensors[0].dtype, number)
    return len(tensors) == 2 and _look_alike(*tensors)


def _is_plain(tracer: TracerProtocol, tensor: torch.Tensor) -> bool:
    """Return whether the operand is a plain tensor of one real number."""
    shown: bool = tracer.python_type(tensor) in (torch.Tensor, torch.nn.Parameter)
    sizes = all(type(size) is int and size == 1 for size in tensor.shape)
    return shown and type(tensor) is FakeTensor and sizes and not tensor.dtype.is_complex


def _look_alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two operands have equal shape, dtype, device and layout, so that ``where`` converts
    neither.
    """
    same: bool = first.shape == second.shape and first.dtype == second.dtype
    return same and first.device == second.device and first.layout == second.layout


def _holds(dtype: torch.dtype, number: object) -> bool:
    """Return whether a tensor of ``dtype`` can replace the number in the operators that follow."""
    if dtype is torch.bool:
        return type(number) is bool
    if dtype.is_floating_point:
        return type(number) in _REAL and dtype.itemsize > 1
    limits = torch.iinfo(dtype)
    return type(number) is int and limits.min <= number <= limits.max


def _tensor_extremum(tracer: TracerProtocol, fn: Callable[..., Any], first: object, second: object) -> Any:
    """Return a new tensor with the value of ``min`` or ``max``. At least one of the two operands is a tensor.

    Return ``NotImplemented`` if the graph cannot select from the two operands.
    """
    # Python returns one of the objects. The graph computes a new tensor of the same value. It is another
    # object, it may be a tensor where Python returns a number, and it has a zero gradient where Python leaves
    # a gradient unset. Therefore the rule applies only under ``fullgraph=True``, where the alternative is an
    # error; torch.compile computes such a tensor as well. Anything else that may differ breaks the graph:
    # other dtypes, numbers that the tensor cannot represent, and later writes to the operands or to the
    # result.
    if not _takes(tracer, first, second):
        return NotImplemented
    better = tracer.trace.calls.call(_BETTER[fn], (second, first), {})
    chosen = tracer.record(torch.where, (better, second, first), {})
    for value in (first, second, chosen):
        if isinstance(value, torch.Tensor):
            text = f"a write to an operand or a result of {fn.__name__}"
            tracer.unwritable[value.untyped_storage()._cdata] = text
    return chosen
