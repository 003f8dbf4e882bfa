"""Records from which the caller makes an aliasing output again, as a view of the caller's own tensor.

torch's functional tensors record the chain of view operators (``ViewMeta``) from the base of a storage to a
tensor. The same chain on the caller's tensor gives a real view: eager's base, eager's ``grad_fn``, eager's
rules for later in-place changes. The caller fills in symbolic sizes at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, cast

import sympy
import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.torch_compat import functionalization as views

UNSAFE_VIEW: type = torch_compat.unsafe_view_ViewMeta
RESIZE_VIEW: type = views.resize__ViewMeta
DETACH_VIEW: type = views.detach_ViewMeta

_aten = torch.ops.aten
SPLITS: Final[dict[type, Any]] = {
    views.unbind_int_ViewMeta: _aten.unbind.int,
    views.split_Tensor_ViewMeta: _aten.split.Tensor,
    views.split_with_sizes_ViewMeta: _aten.split_with_sizes.default,
}
"""The operators that return several views, by the class of the record of one view."""
# Arguments of these records: whether symbolic, the number of the view, two flags, then the operator's
# arguments.
NUMBER: Final = 1
OPERANDS: Final = 4

Step = tuple[type, tuple[Any, ...]]
"""A ViewMeta class and the tuple of its arguments."""


class AliasSource(StrEnum):
    """The kind of tensor from which an alias is made."""

    INPUT = "args"
    OUTPUT = "flat"
    ALIAS = "aliases"


class Detachment(StrEnum):
    """The operation that cuts an alias off from the gradient of its base."""

    NONE = "none"
    DATA = "data"
    """``x.data``: a new version counter, not a view."""
    DETACH = "detach"
    """``x.detach()``: a shared version counter, not a view."""
    NO_GRAD = "no_grad"
    """A view that was made while grad mode was off."""


@dataclass(frozen=True, slots=True)
class AliasInfo:
    """A tensor on the memory of tensor ``index`` of ``source``: apply ``steps``, then ``detachment``."""

    source: AliasSource
    index: int
    steps: tuple[Step, ...]
    detachment: Detachment = Detachment.NONE
    numbers: tuple[tuple[sympy.Symbol, int], ...] = ()
    """Data-dependent symbols of ``steps``, each with the flat output that holds its value."""

    @property
    def sizes(self) -> tuple[torch.SymInt, ...]:
        """Return the symbolic numbers among the arguments of the steps."""
        return tuple(symbols_in([arguments for _, arguments in self.steps]))

    def shifted(self, by: int) -> AliasInfo:
        """Return this record for a graph with ``by`` further flat outputs in front."""
        index = self.index + by if self.source is AliasSource.OUTPUT else self.index
        numbers = tuple((symbol, position + by) for symbol, position in self.numbers)
        return replace(self, index=index, numbers=numbers)

    def with_detachment(self, replay: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls ``replay`` and applies ``detachment`` to the tensor, or tuple of
        tensors, that it returns.
        """
        if self.detachment is Detachment.NONE:
            return replay
        if self.detachment is Detachment.NO_GRAD:
            without: Callable[..., Any] = torch.no_grad()(replay)
            return without
        cut = attrgetter("data") if self.detachment is Detachment.DATA else torch.Tensor.detach

        def make(*arguments: object) -> Any:
            alias = replay(*arguments)
            return tuple(map(cut, alias)) if isinstance(alias, tuple) else cut(alias)

        return make


def apply_steps(
    base: torch.Tensor, kinds: Sequence[Any], step_args: Sequence[tuple[Any, ...]]
) -> torch.Tensor:
    """Apply view records to ``base`` in order, and return the last view.

    Record number i has the class ``kinds[i]`` and the arguments ``step_args[i]``.


    For one result of ``split``, call ``split`` itself: torch 2.15 would replay the record as a slice, with
    another ``grad_fn``.
    """
    pending: list[Any] = []
    for kind, arguments in zip(kinds, step_args, strict=True):
        if kind in SPLITS:
            viewed = views.apply_view_meta_sequence(base, pending) if pending else base
            base, pending = (SPLITS[kind](viewed, *arguments[OPERANDS:])[arguments[NUMBER]], [])
        else:
            pending.append(kind(arguments))
    return cast("torch.Tensor", views.apply_view_meta_sequence(base, pending) if pending else base)


def view_steps(core: torch.Tensor) -> tuple[Step, ...]:
    """Return the view chain of a functional tensor (C++ level), from the base of its storage."""
    return tuple(_step_of(meta) for meta in views.get_view_meta_sequence(core))


def _step_of(meta: Any) -> Step:
    # torch's records of _unsafe_view and resize_ refer to sizes that no longer exist, so they are never
    # replayed. _unsafe_view only views a fresh copy that the program cannot reach otherwise, so its arguments
    # can be left out. Two records of resize_ cannot be compared, so each gets a unique object as its
    # arguments.
    """Return (class, arguments) of one of torch's view records."""
    if isinstance(meta, RESIZE_VIEW):
        return type(meta), (object(),)
    return type(meta), () if isinstance(meta, UNSAFE_VIEW) else meta.as_tuple()


def can_replay(steps: tuple[Step, ...]) -> bool:
    """Return whether the caller can repeat all ``steps``.

    It cannot repeat ``_unsafe_view`` and ``resize_``, because torch's records of these operators are
    incomplete.
    """
    return all(make not in {UNSAFE_VIEW, RESIZE_VIEW} for make, _ in steps)


def is_detach(step: Step) -> bool:
    return step[0] is DETACH_VIEW


def symbols_in(value: object) -> Iterator[torch.SymInt]:
    """Yield the symbolic numbers in nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from symbols_in(item)
    elif isinstance(value, torch.SymInt):
        yield value
