"""Captured nodes that hold a region of the program instead of one operator: activation checkpoints.

The region is run inline, and its nodes are tagged for the partitioner to recompute in the backward instead of
saving. Random numbers are drawn once and saved, so a recomputed region sees those of its forward, which is what
eager's ``preserve_rng_state`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CHECKPOINT_OPTIONS = frozenset(
    {
        "use_reentrant",
        "context_fn",
        "determinism_check",
        "debug",
        "preserve_rng_state",
        "early_stop",
    }
)
RECOMPUTE_TAG = "must_recompute"


def region_of(target: Any) -> Callable[..., Any] | None:
    """Return the function that runs a region given the node's arguments; None if ``target`` is no region."""
    return _REGIONS.get(target)


def _checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **_without_options(kwargs))


def _without_options(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if key not in CHECKPOINT_OPTIONS}


_REGIONS: dict[Any, Callable[..., Any]] = {
    checkpoint: _checkpoint,
    torch.ops.higher_order.tag_activation_checkpoint: _checkpoint,
}
