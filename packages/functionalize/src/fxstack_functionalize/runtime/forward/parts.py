"""Results that are parts of one view operator (``unbind``, ``split``): made by one call of it, as in eager.

Each part has a chain of views of its own, which ends in the operator and the number of the part. Replaying every chain
would make all parts once for each part, and give each part a node of autograd's graph of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from fxstack_functionalize.metadata.replay import NUMBER, OWN, PARTS, Detachment, applied
from fxstack_functionalize.tracing.symbols import filler

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from fxstack_functionalize.metadata import AliasInfo
    from fxstack_functionalize.tracing.inputs import Captured

    Tensors = tuple[torch.Tensor, ...]


def groups(aliases: Sequence[AliasInfo]) -> dict[int, tuple[int, ...]]:
    """For each alias that is made with others: the places of all that one call makes."""
    found: list[dict[int, int]] = []
    latest: dict[Hashable, dict[int, int]] = {}
    for place, alias in enumerate(aliases):
        if not alias.steps or alias.steps[-1][0] not in PARTS:
            continue
        call, number = _call_of(alias), _number(alias)
        # A call gives each part once: the same number again is another call's.
        if number in latest.setdefault(call, {}):
            latest[call] = {}
        if not latest[call]:
            found.append(latest[call])
        latest[call][number] = place
    calls = [tuple(members.values()) for members in found if len(members) > 1]
    return {place: places for places in calls for place in places}


def _number(alias: AliasInfo) -> int:
    number: int = alias.steps[-1][1][NUMBER]
    return number


def _call_of(alias: AliasInfo) -> Hashable:
    """What two parts of one call have in common; symbolic sizes are compared by their expressions."""
    *before, (kind, arguments) = alias.steps
    own = repr((before, arguments[OWN:]))
    return alias.source, alias.index, alias.detachment, kind, own


def parts_maker(captured: Captured, members: Sequence[AliasInfo]) -> Callable[..., Tensors]:
    """Return the function that makes all ``members`` of their base, and of the call's arguments if they have symbolic sizes."""
    first, numbers = members[0], [_number(alias) for alias in members]
    kinds = [make for make, _ in first.steps]
    operator = PARTS[kinds[-1]]

    def made(base: torch.Tensor, given: Sequence[tuple[Any, ...]]) -> Tensors:
        whole = applied(base, kinds[:-1], given[:-1])
        parts = operator(whole, *given[-1][OWN:])
        return tuple([parts[number] for number in numbers])

    detached = _DETACHMENTS[first.detachment](made)
    arguments = [its for _, its in first.steps]
    if not first.sizes:
        return lambda base: detached(base, arguments)
    filled = filler(captured, arguments, first.numbers)
    return lambda base, args: detached(base, filled(args))


def _no_grad(make: Callable[..., Tensors]) -> Callable[..., Tensors]:
    def made(*given: object) -> Tensors:
        with torch.no_grad():
            return make(*given)

    return made


_DETACHMENTS: Final[dict[Detachment, Callable[[Any], Callable[..., Tensors]]]] = {
    Detachment.NONE: lambda make: make,
    Detachment.DATA: lambda make: lambda *given: tuple([part.data for part in make(*given)]),
    Detachment.DETACH: lambda make: lambda *given: tuple([part.detach() for part in make(*given)]),
    Detachment.NO_GRAD: _no_grad,
}
