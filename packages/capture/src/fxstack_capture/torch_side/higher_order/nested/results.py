"""Results of the functions of one operator: numbers as tensors, and results of branches that differ.

A nested graph returns tensors alone. A number that a function returns becomes a tensor of one number, and the
outer graph reads the number again. Branches may return tensors of different sizes and different numbers: the size
or the number that the program sees then depends on data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fxstack_capture.torch_side.higher_order.nested.bodies import same_number
from fxstack_capture.torch_side.recording.protocol import TracerProtocol

_DTYPES: dict[type, torch.dtype] = {
    bool: torch.bool,
    torch.SymBool: torch.bool,
    int: torch.int64,
    torch.SymInt: torch.int64,
    float: torch.float64,
    torch.SymFloat: torch.float64,
}
_CLASSES = {torch.bool: "bool", torch.int64: "int", torch.float64: "float"}
_LARGEST = 2**63


def is_number(value: object) -> bool:
    """Return whether a value is a number of Python, or symbolic, that a tensor can hold exactly."""
    return type(value) in _DTYPES and not (type(value) is int and not -_LARGEST <= value < _LARGEST)


def tensor_of(tracer: TracerProtocol, value: Any) -> torch.Tensor | None:
    """Record a tensor of the number ``value``. Return ``None`` for a value that is no number."""
    if not is_number(value):
        return None
    dtype = _DTYPES[type(value)]
    if type(value) is torch.SymBool:
        value = torch.sym_ite(value, 1, 0)
    made: torch.Tensor = tracer.record(torch.scalar_tensor, (value,), {"dtype": dtype, "device": "cpu"})
    return made


def number_of(tracer: TracerProtocol, tensor: torch.Tensor) -> Any:
    """Record the number in a tensor that ``tensor_of`` has made, or in its successor."""
    return tracer.number_in(tensor)


def kind_of(value: object) -> str:
    """Return how a result is called in a message: its class, a number's without regard to symbols."""
    return _CLASSES[_DTYPES[type(value)]] if type(value) in _DTYPES else type(value).__name__


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of two values: of which attribute, and the attribute's two values."""

    attribute: str
    first: object
    second: object

    def text(self, first: str, second: str) -> str:
        """Return the difference in words. ``first`` and ``second`` name the two values."""
        return f"{self.attribute} {self.first} {first} and {self.second} {second}"


def difference_of_kinds(first: object, second: object) -> Difference | None:
    """Return in what the classes of two results differ: a tensor, a number, or ``None``."""
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return None
    kinds = [("tensor" if isinstance(x, torch.Tensor) else kind_of(x)) for x in (first, second)]
    return None if kinds[0] == kinds[1] else Difference("class", *kinds)


def difference_of_tensors(
    first: torch.Tensor, second: torch.Tensor, *, sizes: bool = True
) -> Difference | None:
    """Return in what two tensors differ, besides their strides. ``sizes``: the sizes must agree, too."""
    for attribute in ("dtype", "device", "layout"):
        mine, theirs = getattr(first, attribute), getattr(second, attribute)
        if mine != theirs:
            return Difference(attribute, mine, theirs)
    if first.dim() != second.dim():
        return Difference("number of dimensions", first.dim(), second.dim())
    if sizes and not all(map(_equal, first.size(), second.size())):
        return Difference("size", tuple(first.size()), tuple(second.size()))
    return None


def _equal(size: Any, other: Any) -> bool:
    """Return whether two sizes are equal. A guard decides sizes of inputs; other sizes must be equal by expression."""
    if same_number(size, other):
        return True
    if any(isinstance(x, torch.SymInt) and not x.node.has_hint() for x in (size, other)):
        return False
    return bool(size == other)


def merged_size(tracer: TracerProtocol, size: Any, other: Any, *, is_own: bool) -> Any:
    """Return the size of a result whose size is ``size`` in one branch and ``other`` in the other branch.

    ``is_own``: a branch computes one of the sizes from data.
    """
    if same_number(size, other) and not is_own:
        return size
    env = tracer.geometry.env
    with env.scalar_outputs_allowed():
        merged = env.create_unbacked_symint()
    ranges = [env.bound_sympy(x.node.expr) if isinstance(x, torch.SymInt) else None for x in (size, other)]
    lowest = [x if r is None else r.lower for x, r in zip((size, other), ranges, strict=True)]
    highest = [x if r is None else r.upper for x, r in zip((size, other), ranges, strict=True)]
    lower = min(int(x) if x > 0 else 0 for x in lowest)
    env.constrain_symbol_range(merged.node.expr, lower, max(highest))
    return merged


def limit(tracer: TracerProtocol, number: Any, values: Sequence[Any]) -> None:
    """Note that an integer from data is one of ``values``."""
    if type(number) is torch.SymInt and number.node.expr.is_symbol and all(type(v) is int for v in values):
        tracer.geometry.env.constrain_symbol_range(number.node.expr, min(values), max(values))
