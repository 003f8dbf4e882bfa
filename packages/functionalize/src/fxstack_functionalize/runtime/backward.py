"""The runtime half of a backward: its arguments from what autograd hands over, and who gets which gradient.

Autograd gives None for an output that took no part. The compiled backward needs a tensor there, so zeros are made;
a gradient that depends on such outputs alone is then None again, as eager's would be.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize.runtime.tangents import dense_like
from fxstack_functionalize.symbols import hint_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_functionalize.metadata import GraphInfo
    from fxstack_functionalize.runtime.plan import Example, TrainingPlan


class BackwardPlan:
    """Everything about the backward's inputs and outputs that does not change from call to call."""

    def __init__(self, info: GraphInfo, plan: TrainingPlan) -> None:
        self.positions = [tangent.position for tangent in plan.tangents]
        self.zeros = [_zeros_like(tangent.example) for tangent in plan.tangents]
        self.fixers = [dense_like(tangent.example) for tangent in plan.tangents]
        self.targets = plan.targets
        self.input_count = len(info.inputs)
        self.differentiable = info.differentiable
        self.sizes = dict(plan.shapes)
        self.sources = {index: frozenset(sources) for index, sources in plan.sources}

    def tangents(self, grads: Sequence[Any], sizes: Any) -> list[torch.Tensor]:
        """List the tangents that the backward graph takes; zeros of ``sizes`` for those that autograd has none for."""
        tangents = []
        for fix, position, zeros in zip(self.fixers, self.positions, self.zeros, strict=True):
            grad = grads[position]
            tangents.append(zeros(sizes[position]) if grad is None else fix(grad))
        return tangents

    def gradients(self, results: Sequence[Any], grads: Sequence[Any]) -> list[Any]:
        """Put the results in the order of the inputs."""
        gradients: list[Any] = [None] * self.input_count
        for position, value in zip(self.targets, results, strict=True):
            gradients[position] = value
        missing = {p for p in self.differentiable if grads[p] is None}
        if missing:
            for position, sources in self.sources.items():
                if sources and sources <= missing:
                    gradients[position] = None
        return gradients


def sizes_keeper(info: GraphInfo, plan: TrainingPlan) -> Callable[[Sequence[Any]], Any] | None:
    """Return a function that keeps the sizes of zeros for missing gradients; None if they are static."""
    positions = info.differentiable
    if not plan.symbolic:
        return None
    return lambda results: {position: results[position].shape for position in positions}


def _zeros_like(example: Example) -> Callable[[Sequence[int]], torch.Tensor]:
    """Return a function that makes zeros of a size, with the dimensions in memory in the order of ``example``."""
    order = sorted(range(example.dim()), key=lambda dim: -hint_of(example.stride(dim)))
    make = partial(torch.zeros, dtype=example.dtype, device=example.device)
    if order == sorted(order):
        return make
    places = [order.index(dim) for dim in range(len(order))]
    return lambda size: make([size[dim] for dim in order]).permute(places)
