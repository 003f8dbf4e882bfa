"""The one options record of this package."""

from __future__ import annotations

from dataclasses import dataclass, field

from fxstack_interchange import InputKind

_STATIC = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """What a partitioner may be told.

    ``solver`` names a registered minimum-cut solver. ``static_inputs`` are the kinds of inputs that stay
    alive anyway, so that saving one costs nothing. ``unbacked_hint`` stands for a symbol without a hint
    when sizes are compared. ``recompute_reductions`` and ``recompute_views`` widen or narrow what may be
    computed again in the backward.
    """

    solver: str = "scipy"
    static_inputs: frozenset[InputKind] = field(default=_STATIC)
    unbacked_hint: int = 64
    recompute_reductions: bool = False
    recompute_views: bool = True
