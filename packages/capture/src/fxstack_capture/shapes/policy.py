"""Which numbers of an input become symbolic: marks, choices by name, options and history, in this order of precedence.

What is chosen to be unbacked precedes all.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.chosen import NOTHING_CHOSEN, Choices
from fxstack_capture.shapes.contract import Bound, Solved
from fxstack_capture.shapes.dims import DimRule, Hint, Named, Range
from fxstack_capture.shapes.history import FrameHistory, number_of, offset_of, size_of, stride_of
from fxstack_capture.shapes.lattice import DYNAMIC, Inferred
from fxstack_capture.shapes.marks import DimRange, marks_of
from fxstack_capture.sources import Free, FreeCell, Item, Key, Local, Source, ValueAt


class Kind(enum.Enum):
    """How a number is represented in a trace."""

    STATIC = "static"
    DUCK = "duck"
    """Symbolic; numbers with equal values share a symbol."""
    OWN = "own"
    """Symbolic with a symbol of its own."""
    UNBACKED = "unbacked"
    NAMED = "named"
    """A formula of the symbol of a named dimension."""


@dataclass(frozen=True, slots=True)
class SizePlan:
    kind: Kind
    bounds: DimRange | Range | None = None
    strict: bool = False
    """Whether it is an error if the program needs this number to be one value."""
    named: Named | None = None
    solved: Solved | None = None
    shape_id: str | None = None
    """Unbacked sizes with one id are equal."""


_STATIC = SizePlan(Kind.STATIC)
_DUCK = SizePlan(Kind.DUCK)


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """One entry per dimension. A stride is a number, ``Inferred``, or ``DYNAMIC``."""

    sizes: tuple[SizePlan, ...]
    strides: tuple[object, ...]
    offset_dynamic: bool

    @property
    def static(self) -> bool:
        return (
            all(size.kind is Kind.STATIC for size in self.sizes)
            and DYNAMIC not in self.strides
            and not self.offset_dynamic
        )


def plan_tensor(
    real: torch.Tensor,
    source: Source,
    history: FrameHistory,
    options: CaptureOptions,
    contract: Bound | None = None,
    *,
    choices: Choices = NOTHING_CHOSEN,
) -> TensorPlan:
    """Observe a tensor and decide what of it is symbolic."""
    rank = real.dim()
    if isinstance(real, torch.nn.Parameter) or options.dynamic is False:
        sizes = [_STATIC] * rank
    else:
        sizes = [
            _plan_size(history, size_of(source, rank, dim), size, options)
            for dim, size in enumerate(real.size())
        ]
    if choices is not NOTHING_CHOSEN:
        _apply_choices(real, source, sizes, choices)
    _apply_marks(real, source, history, sizes)
    for dim in range(rank):
        if choices.is_unbacked(source, dim):
            sizes[dim] = SizePlan(Kind.UNBACKED)
    if contract is not None and id(real) in contract.tensors:
        rules = zip(contract.tensors[id(real)], real.size(), strict=True)
        sizes = [_contracted(rule, size, contract) for rule, size in rules]
    strides = [
        _plan_stride(history, stride_of(source, rank, dim), seen, options)
        for dim, seen in enumerate(describe_strides(real.size(), real.stride()))
    ]
    place = offset_of(source)
    offset = real.storage_offset()
    known = history.get(place) is not None and options.dynamic is not False
    return TensorPlan(tuple(sizes), tuple(strides), known and history.observe(place, offset) is DYNAMIC)


def _plan_size(history: FrameHistory, place: str, size: int, options: CaptureOptions) -> SizePlan:
    if history.observe(place, size) is DYNAMIC or options.dynamic:
        return _DUCK
    return _STATIC


def _plan_stride(history: FrameHistory, place: str, seen: int | Inferred, options: CaptureOptions) -> object:
    joined = history.observe(place, seen)
    return DYNAMIC if joined is DYNAMIC and options.dynamic is not False else seen


def _apply_choices(real: torch.Tensor, source: Source, sizes: list[SizePlan], choices: Choices) -> None:
    """They are above ``dynamic=False``, and names hold for parameters, too."""
    is_parameter = isinstance(real, torch.nn.Parameter)
    for dim, size in enumerate(real.size()):
        if choices.is_named_dynamic(source, dim) if is_parameter else choices.is_dynamic(source, dim, size):
            sizes[dim] = SizePlan(Kind.OWN)


def _apply_marks(real: torch.Tensor, source: Source, history: FrameHistory, sizes: list[SizePlan]) -> None:
    """What is marked dynamic is remembered as having changed: it stays dynamic when others are marked later."""
    if not real.__dict__:
        return
    marks = marks_of(real)
    for dim in marks.weak:
        sizes[dim] = SizePlan(Kind.OWN)
    for dim in marks.static:
        sizes[dim] = _STATIC
    for dim, bounds in marks.dynamic.items():
        history.observe(size_of(source, real.dim(), dim), DYNAMIC)
        # Sizes of 0 and 1 have graphs of their own.
        sizes[dim] = SizePlan(Kind.OWN, bounds, strict=True) if real.size(dim) > 1 else _STATIC
    for dim, bounds in marks.unbacked.items():
        sizes[dim] = SizePlan(Kind.UNBACKED, bounds, shape_id=marks.shape_ids.get(dim))


def _contracted(rule: DimRule, size: int, contract: Bound) -> SizePlan:
    """Sizes of 0 and 1 have graphs of their own, as has a name by which another size is 0 or 1."""
    if isinstance(rule, Hint) and size > 1:
        return SizePlan(Kind.OWN, rule.bounds, rule.strict)
    if isinstance(rule, Named) and not contract.roots[rule.root.name].apart:
        return SizePlan(Kind.NAMED, named=rule, solved=contract.roots[rule.root.name])
    return _STATIC


def plan_number(
    value: float,
    source: Source,
    history: FrameHistory,
    options: CaptureOptions,
    contract: Bound | None = None,
    *,
    choices: Choices = NOTHING_CHOSEN,
) -> Kind:
    """Observe an int or float and decide whether it is symbolic.

    ``dynamic=True`` makes numbers that callers pass symbolic from the start; those that are configuration
    (attributes, globals) become so only when they change.
    """
    if contract is not None and source in contract.numbers:
        return Kind.STATIC if contract.numbers[source] is None else Kind.OWN
    if choices.is_dynamic_number(source, value):
        return Kind.OWN
    if options.dynamic is False:
        return Kind.STATIC
    if history.observe(number_of(source), value) is DYNAMIC:
        return Kind.OWN
    return Kind.OWN if options.dynamic and is_argument(source) else Kind.STATIC


def is_argument(source: Source | None) -> bool:
    """Whether a value is passed by the caller, possibly inside of containers."""
    while isinstance(source, (Item, Key, ValueAt)):
        source = source.base
    return isinstance(source, (Local, Free, FreeCell))


def describe_strides(sizes: Sequence[int], strides: Sequence[int]) -> list[int | Inferred]:
    """Strides that follow from sizes as ``Inferred``, others as numbers.

    Dimensions are looked at from the smallest stride up; each is compared with the one just below it.
    """
    result: list[int | Inferred] = list(strides)
    order = sorted(range(len(sizes)), key=lambda dim: (strides[dim], sizes[dim], -dim))
    for below, dim in pairwise(order):
        if strides[dim] > 1 and strides[dim] == strides[below] * sizes[below]:
            result[dim] = Inferred(below)
    return result
