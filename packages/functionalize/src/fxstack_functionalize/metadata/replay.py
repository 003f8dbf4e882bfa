"""How to make a tensor that aliases another one again, from the caller's own tensor.

The functional wrappers of torch know the chain of view operators that leads from a storage's base to a tensor
(``ViewMeta`` records). Applied to the caller's tensor they give a real view: same base, same ``grad_fn``, same
rules for a later in-place change. Sizes that are symbolic are filled in at each call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.torch_compat import functionalization as views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import sympy

UNSAFE_VIEW: type = torch_compat.unsafe_view_ViewMeta
RESIZE: type = views.resize__ViewMeta
DETACH: type = views.detach_ViewMeta

_aten = torch.ops.aten
PARTS: Final[dict[type, Any]] = {
    views.unbind_int_ViewMeta: _aten.unbind.int,
    views.split_Tensor_ViewMeta: _aten.split.Tensor,
    views.split_with_sizes_ViewMeta: _aten.split_with_sizes.default,
}
"""The operators that make several views, by the records of one of them."""
# Arguments of these records: symbolic or not, the number of the part, two flags, and those of the operator.
NUMBER: Final = 1
OWN: Final = 4

Step = tuple[type, tuple[Any, ...]]
"""A ViewMeta class and the tuple of its arguments."""


class AliasSource(StrEnum):
    """What an alias is made from."""

    INPUT = "args"
    OUTPUT = "flat"
    ALIAS = "aliases"


class Detachment(StrEnum):
    """How an alias loses its base's gradient, if it does."""

    NONE = "none"
    DATA = "data"
    """As ``x.data`` does: new version counter, no view."""
    DETACH = "detach"
    """As ``x.detach()`` does: the version counter is shared, no view."""
    NO_GRAD = "no_grad"
    """A view made while grad mode was off."""


@dataclass(frozen=True, slots=True)
class AliasInfo:
    """A tensor that shares memory with input, flat output or earlier alias ``index``: ``steps``, then ``detachment``."""

    source: AliasSource
    index: int
    steps: tuple[Step, ...]
    detachment: Detachment = Detachment.NONE
    numbers: tuple[tuple[sympy.Symbol, int], ...] = ()
    """Symbols of ``steps`` that depend on data, each with the flat output that is its value."""

    @property
    def sizes(self) -> tuple[torch.SymInt, ...]:
        """Return the symbolic numbers among the steps' arguments."""
        return tuple(symbols_in([arguments for _, arguments in self.steps]))

    def shifted(self, by: int) -> AliasInfo:
        """Return the record for a graph with ``by`` more flat outputs in front."""
        index = self.index + by if self.source is AliasSource.OUTPUT else self.index
        numbers = tuple((symbol, position + by) for symbol, position in self.numbers)
        return replace(self, index=index, numbers=numbers)

    def maker(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return the function that makes the alias of its base; for a chain without symbolic numbers."""
        kinds, given = zip(*self.steps, strict=True) if self.steps else ((), ())
        if any(kind in PARTS for kind in kinds):
            return self._made(lambda base: applied(base, kinds, given))
        sequence = [make(arguments) for make, arguments in self.steps]
        return self._made(lambda base: views.apply_view_meta_sequence(base, sequence))

    def maker_with(
        self, filled: Callable[[Sequence[Any]], Sequence[tuple[Any, ...]]]
    ) -> Callable[[torch.Tensor, Sequence[Any]], torch.Tensor]:
        """Return the function of the base and of what ``filled`` makes the arguments of the steps of."""
        kinds = [make for make, _ in self.steps]

        return self._made(lambda base, args: applied(base, kinds, filled(args)))

    def _made(self, replay: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return _DETACHMENTS[self.detachment](replay)


def applied(base: torch.Tensor, kinds: Sequence[Any], given: Sequence[tuple[Any, ...]]) -> torch.Tensor:
    """Return the view of ``base`` that records of these kinds make, from these arguments.

    A part of ``split`` is made by ``split``: torch 2.15 replays it as a slice, which autograd knows by another name.
    """
    rest: list[Any] = []
    for kind, arguments in zip(kinds, given, strict=True):
        if kind in PARTS:
            whole = views.apply_view_meta_sequence(base, rest) if rest else base
            base, rest = PARTS[kind](whole, *arguments[OWN:])[arguments[NUMBER]], []
        else:
            rest.append(kind(arguments))
    return cast("torch.Tensor", views.apply_view_meta_sequence(base, rest) if rest else base)


def _no_grad(replay: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def make(*given: object) -> torch.Tensor:
        with torch.no_grad():
            return replay(*given)

    return make


_DETACHMENTS: dict[Detachment, Callable[[Any], Callable[..., torch.Tensor]]] = {
    Detachment.NONE: lambda replay: replay,
    Detachment.DATA: lambda replay: lambda *given: replay(*given).data,
    Detachment.DETACH: lambda replay: lambda *given: replay(*given).detach(),
    Detachment.NO_GRAD: _no_grad,
}


def view_steps(core: torch.Tensor) -> tuple[Step, ...]:
    """Read the view chain of a functional tensor (C++ level), from its storage's base."""
    return tuple(_step(meta) for meta in views.get_view_meta_sequence(core))


def _step(meta: Any) -> Step:
    # torch's records of _unsafe_view and resize_ keep a reference to sizes that are gone, so they are never replayed. The
    # first only ever leads from a fresh copy, which nobody else sees, to the tensor that the program gets; no two of the
    # second are known to be the same.
    if isinstance(meta, RESIZE):
        return type(meta), (object(),)
    return type(meta), () if isinstance(meta, UNSAFE_VIEW) else meta.as_tuple()


def can_replay(steps: tuple[Step, ...]) -> bool:
    return all(make not in {UNSAFE_VIEW, RESIZE} for make, _ in steps)


def is_detach(step: Step) -> bool:
    return step[0] is DETACH


def symbols_in(value: object) -> Iterator[torch.SymInt]:
    """Yield the symbolic numbers in a nest of arguments."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from symbols_in(item)
    elif isinstance(value, torch.SymInt):
        yield value
