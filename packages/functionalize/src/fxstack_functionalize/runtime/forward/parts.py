"""Make all results of one view operator (``unbind``, ``split``) by one call, as in eager.

Each result has its own chain of views, which ends in the operator and the number of the result. Replaying
every chain would call the operator once for each result, and give each result its own autograd node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from fxstack_functionalize.metadata.replay import NUMBER, OWN, PARTS, AliasInfo, applied
from fxstack_functionalize.tracer.inputs import Captured
from fxstack_functionalize.tracer.symbols import filler

Tensors = tuple[torch.Tensor, ...]


def groups(aliases: Sequence[AliasInfo]) -> dict[int, tuple[int, ...]]:
    """Return for each alias that one call makes with others the places of all these aliases."""
    found: list[dict[int, int]] = []
    latest: dict[Hashable, dict[int, int]] = {}
    for place, alias in enumerate(aliases):
        if not alias.steps or alias.steps[-1][0] not in PARTS:
            continue
        call, number = _call_of(alias), _number(alias)
        # A call returns each number once: a repeated number belongs to another call.
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
    """Return a key that is equal for results of one call. Symbolic sizes are compared as expressions."""
    *before, (kind, arguments) = alias.steps
    own = repr((before, arguments[OWN:]))
    return alias.source, alias.index, alias.detachment, kind, own


def parts_maker(captured: Captured, members: Sequence[AliasInfo]) -> Callable[..., Tensors]:
    """Return the function from the base (and the arguments, for symbolic sizes) to all ``members``."""
    first, numbers = members[0], [_number(alias) for alias in members]
    kinds = [make for make, _ in first.steps]
    operator = PARTS[kinds[-1]]

    def made(base: torch.Tensor, given: Sequence[tuple[Any, ...]]) -> Tensors:
        whole = applied(base, kinds[:-1], given[:-1])
        parts = operator(whole, *given[-1][OWN:])
        return tuple([parts[number] for number in numbers])

    detached = first.detached(made)
    arguments = [its for _, its in first.steps]
    if not first.sizes:
        return lambda base: detached(base, arguments)
    filled = filler(captured, arguments, first.numbers)
    return lambda base, args: detached(base, filled(args))
