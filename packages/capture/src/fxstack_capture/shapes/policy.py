"""Which numbers of an input become symbolic.

There are four sources of a decision. Marks take precedence over choices by name, choices over options, and
options over history. However, a choice that makes a size unbacked takes precedence over all of them. If a
tensor has a shape contract, only the contract decides its sizes.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch

from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.chosen import NOTHING_CHOSEN, Choices
from fxstack_capture.shapes.contract import Bound, Solved
from fxstack_capture.shapes.dims import DimRule, Hint, Named, Range
from fxstack_capture.shapes.history import (
    DYNAMIC,
    FrameHistory,
    Inferred,
    number_of,
    offset_of,
    size_of,
    stride_of,
)
from fxstack_capture.shapes.marks import DimRange, marks_of
from fxstack_capture.sources import Free, FreeCell, Item, Key, Local, Source, ValueAt


class Kind(enum.Enum):
    """The representation of a number in a trace."""

    STATIC = "static"
    """A constant. A guard compares it."""
    DUCK = "duck"
    """Symbolic. Numbers with equal values share a symbol."""
    OWN = "own"
    """Symbolic, with its own symbol."""
    UNBACKED = "unbacked"
    """Symbolic, without a value on which decisions may depend."""
    NAMED = "named"
    """A formula of the symbol of a named dimension."""


@dataclass(frozen=True, slots=True)
class SizePlan:
    """The decision about one size. ``plan_tensor`` makes the decision, and ``Geometry.size`` carries it out."""

    kind: Kind
    bounds: DimRange | Range | None = None
    """The range of the size, from a mark or a contract."""
    strict: bool = False
    """Whether a program that needs one specific value of this size raises an error."""
    named: Named | None = None
    """The formula, if the size is ``NAMED``."""
    solved: Solved | None = None
    """The value of the formula's name in this call, if the size is ``NAMED``."""
    shape_id: str | None = None
    """Unbacked sizes with the same id are equal."""


_STATIC = SizePlan(Kind.STATIC)
_DUCK = SizePlan(Kind.DUCK)


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """The decisions about one tensor, with one entry per dimension. ``Geometry.tensor`` carries them out."""

    sizes: tuple[SizePlan, ...]
    strides: tuple[object, ...]
    """The decision for each dimension.

    This is a number for a constant stride, ``Inferred`` for a stride that follows from a size, or
    ``DYNAMIC``.
    """
    offset_dynamic: bool
    """Whether the storage offset is symbolic."""

    @property
    def static(self) -> bool:
        """Whether no number of the tensor is symbolic. The fake needs no symbols then."""
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
    """Observe the numbers of a tensor in ``history`` and decide which of them are symbolic.

    Called for each input tensor before its fake is made.
    """
    rank = real.dim()
    # Parameters keep their sizes, so symbols would only cost guards. Only marks and choices by name make them
    # symbolic.
    if isinstance(real, torch.nn.Parameter) or is_static(options):
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
        sizes = [_plan_contracted_size(rule, size, contract) for rule, size in rules]
    strides = [
        _plan_stride(history, stride_of(source, rank, dim), stride, options)
        for dim, stride in enumerate(_describe_strides(real.size(), real.stride()))
    ]
    offset_key = offset_of(source)
    offset = real.storage_offset()
    # The tracer observes an offset when the program reads it. If the program never reads it, one graph serves
    # every offset.
    is_seen = history.get(offset_key) is not None and not is_static(options)
    return TensorPlan(
        tuple(sizes), tuple(strides), is_seen and history.observe(offset_key, offset) is DYNAMIC
    )


def is_static(options: CaptureOptions) -> bool:
    """Whether the options keep sizes and numbers constant even if they change. Marks and choices override
    this.
    """
    return options.dynamic is False or not (options.dynamic or options.automatic_dynamic)


def _plan_size(history: FrameHistory, key: str, size: int, options: CaptureOptions) -> SizePlan:
    """Return the plan of a size without marks.

    The size is symbolic if the history has seen two values, or with ``dynamic=True``.
    """
    if history.observe(key, size) is DYNAMIC or options.dynamic:
        return _DUCK
    return _STATIC


def _plan_stride(history: FrameHistory, key: str, stride: int | Inferred, options: CaptureOptions) -> object:
    """Return the plan of a stride.

    It is ``DYNAMIC`` if the history has seen two values and the options allow it, otherwise ``stride``.
    """
    joined = history.observe(key, stride)
    return DYNAMIC if joined is DYNAMIC and not is_static(options) else stride


def _apply_choices(real: torch.Tensor, source: Source, sizes: list[SizePlan], choices: Choices) -> None:
    """Replace the plans of chosen sizes in ``sizes`` by symbolic plans.

    Choices override ``dynamic=False``. Choices by source name also apply to parameters, choices by value do
    not.
    """
    is_parameter = isinstance(real, torch.nn.Parameter)
    for dim, size in enumerate(real.size()):
        if choices.is_named_dynamic(source, dim) if is_parameter else choices.is_dynamic(source, dim, size):
            sizes[dim] = SizePlan(Kind.OWN)


def _apply_marks(real: torch.Tensor, source: Source, history: FrameHistory, sizes: list[SizePlan]) -> None:
    """Replace the plans of marked dimensions in ``sizes``."""
    if not real.__dict__:
        return
    marks = marks_of(real)
    for dim in marks.weak:
        sizes[dim] = SizePlan(Kind.OWN)
    for dim in marks.static:
        sizes[dim] = _STATIC
    for dim, bounds in marks.dynamic.items():
        # The history records a marked dimension as dynamic. It then stays dynamic if later tensors lack the
        # mark.
        history.observe(size_of(source, real.dim(), dim), DYNAMIC)
        # Sizes of 0 and 1 need graphs of their own.
        sizes[dim] = SizePlan(Kind.OWN, bounds, strict=True) if real.size(dim) > 1 else _STATIC
    for dim, bounds in marks.unbacked.items():
        sizes[dim] = SizePlan(Kind.UNBACKED, bounds, shape_id=marks.shape_ids.get(dim))


def _plan_contracted_size(rule: DimRule, size: int, contract: Bound) -> SizePlan:
    """Return the plan of a size that a contract describes.

    Sizes of 0 and 1 need graphs of their own. The same holds for a named dimension whose value makes another
    size 0 or 1.
    """
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
    """Observe an int or float in ``history``, and decide whether it is symbolic: ``Kind.OWN`` or
    ``Kind.STATIC``.

    Called for each number that the program reads from outside. With ``dynamic=True``, numbers that callers
    pass are symbolic from the start. Configuration numbers (attributes, globals) become symbolic only when
    they change.
    """
    if contract is not None and source in contract.numbers:
        return Kind.STATIC if contract.numbers[source] is None else Kind.OWN
    if choices.is_dynamic_number(source, value):
        return Kind.OWN
    if is_static(options) or (
        options.specialize_float if isinstance(value, float) else options.specialize_int
    ):
        return Kind.STATIC
    if history.observe(number_of(source), value) is DYNAMIC:
        return Kind.OWN
    return Kind.OWN if options.dynamic and is_argument(source) else Kind.STATIC


def is_argument(source: Source | None) -> bool:
    """Whether the value at ``source`` is an argument, part of an argument, or a free variable."""
    while isinstance(source, (Item, Key, ValueAt)):
        source = source.base
    return isinstance(source, (Local, Free, FreeCell))


@lru_cache
def _describe_strides(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int | Inferred, ...]:
    """Return ``describe_strides`` of a real tensor. Many tensors of a program have equal sizes."""
    return tuple(describe_strides(sizes, strides))


def describe_strides(sizes: Sequence[int], strides: Sequence[int]) -> list[int | Inferred]:
    """Return each stride that follows from sizes as ``Inferred``, and any other stride as a number.

    Each dimension, from the smallest stride up, is compared with the dimension of the next smaller stride.
    """
    # An inferred stride stays equal when a size changes. Therefore a new size does not make the stride
    # dynamic as well.
    result: list[int | Inferred] = list(strides)
    order = sorted(range(len(sizes)), key=lambda dim: (strides[dim], sizes[dim], -dim))
    for below, dim in pairwise(order):
        if strides[dim] > 1 and strides[dim] == strides[below] * sizes[below]:
            result[dim] = Inferred(below)
    return result
