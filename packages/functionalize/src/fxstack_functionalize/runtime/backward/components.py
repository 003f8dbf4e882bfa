"""Results with different histories: one autograd node for each group of results.

Autograd runs and frees everything behind a node, even behind outputs without gradient. So if some results
come from one intermediate tensor and others from another, the compiled graph's node has the edges of the
first group only, and each further group gets its own node with its own edges. The nodes share saved tensors
(``sequential_backward``) and the compiled backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.runtime.backward.double_backward import SecondOrder

Backward = Callable[..., Sequence[Any]]

# Limits: if results with a common part come from different intermediate tensors, the backward of one result
# also runs through the histories of the others, with gradients of None. It raises if one of these was freed.

_set_versions = torch_compat.unsafe_set_version_counter
STATE = ("held", "symbols", "sizes", "inputs")
"""Attributes that a forward leaves on its ``ctx`` for its backward."""


class Component:
    """The flat outputs at ``positions``, which depend on ``inputs``. ``backward``: the whole graph's."""

    def __init__(self, info: GraphInfo, number: int, backward: Backward) -> None:
        self.positions, self.inputs = info.components[number]
        self._count = info.output_count
        self._backward = backward

    def attach(self, flat: Sequence[Any], args: Sequence[Any], state: object) -> None:
        """Give the results their own history, with the attributes that the forward left on ``state``."""
        results = [flat[position] for position in self.positions]
        versions = [result._version for result in results]
        _apply(self, state, *results, *(args[index] for index in self.inputs))
        _set_versions(results, versions)

    def gradients(self, ctx: object, grads: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients of the inputs, given the gradients of the results."""
        whole: list[Any] = [None] * self._count
        for position, grad in zip(self.positions, grads, strict=True):
            whole[position] = grad
        found = self._backward(ctx, *whole)
        return tuple(found[index] for index in self.inputs)


class _Part(torch.autograd.Function):
    """The identity on results, in place, with edges to the inputs on which they depend."""

    @staticmethod
    def forward(ctx: Any, component: Component, state: Any, *tensors: torch.Tensor) -> Any:
        """``tensors``: the results, then the inputs, which only provide edges."""
        ctx.component = component
        for name in STATE:
            if hasattr(state, name):
                setattr(ctx, name, getattr(state, name))
        ctx.set_materialize_grads(False)
        results = tensors[: len(component.positions)]
        ctx.mark_dirty(*results)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        found = ctx.component.gradients(ctx, grads)
        return (None, None, *([None] * len(grads)), *found)


# Function.apply first handles functorch transforms in Python; the wrapper has handled them.
_apply: Callable[..., Any] = super(torch.autograd.Function, _Part).apply


def in_components(
    apply: Callable[..., Any], info: GraphInfo, backward: Backward, second: SecondOrder
) -> Callable[..., Any]:
    """Return ``apply`` for all components. The node of ``apply`` itself is that of the first component."""
    (first, own), *_ = info.components
    others = [Component(info, number, backward) for number in range(1, len(info.components))]
    foreign = [index for index in info.wanted if index not in own]

    def call(*args: Any) -> Any:
        given = [*args]
        for place in foreign:
            given[place] = given[place].detach()
        flat = apply(*given)
        state = flat[first[0]].grad_fn
        # A second differentiation needs the inputs with their histories.
        if second.keeps:
            state.inputs = second.keep(args)
        whole = {id(given[place]): args[place] for place in foreign}
        state.held.inputs = [whole.get(id(kept), kept) for kept in state.held.inputs]
        for component in others:
            component.attach(flat, args, state)
        return flat

    return call
