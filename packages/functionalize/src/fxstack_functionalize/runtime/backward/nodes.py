"""Further autograd nodes for the results of a compiled graph, besides the node of the graph itself.

Autograd runs and frees everything behind a node, even behind outputs without gradient. So a result whose
history in eager is not that of all results gets its own node: ``partial_inputs`` does so for results that reach
other inputs than the other results, ``edge_gradients`` for results that are computed from other results.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fxstack_functionalize import torch_compat


class _ResultHooks(OrderedDict[int, Callable[[torch.Tensor | None], Any]]):
    """The hooks of one of several results. Eager calls no hook of a result that gets no gradient."""

    def __setitem__(self, key: int, hook: Callable[[torch.Tensor | None], Any]) -> None:
        super().__setitem__(key, lambda grad: None if grad is None else hook(grad))


def register_hooks(node: Any, result: torch.Tensor) -> None:
    """Let ``node`` call the hooks of ``result``. The node also runs if only other results have a gradient."""
    result._backward_hooks = _ResultHooks()
    torch_compat.FunctionBase._register_hook_dict(node, result)


class HistoryNode(torch.autograd.Function):
    """The identity on results, in place, with edges to the tensors on which they depend."""

    @staticmethod
    def forward(ctx: Any, attributes: Mapping[str, Any], count: int, *tensors: torch.Tensor) -> Any:
        """``tensors``: ``count`` results, then tensors that only provide edges.

        ``attributes`` of the node. ``gradients`` is a function of the node and the gradients of the results,
        which returns those of ``tensors``.
        """
        for name, value in attributes.items():
            setattr(ctx, name, value)
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(*tensors[:count])
        return tensors[:count]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return (None, None, *ctx.gradients(ctx, grads))


def give_history(
    kind: type[HistoryNode], results: Sequence[Any], sources: Sequence[Any], attributes: Mapping[str, Any]
) -> None:
    """Give ``results`` a common node of class ``kind`` with edges to their own nodes and to ``sources``."""
    versions = [result._version for result in results]
    # Function.apply first handles functorch transforms in Python; the wrapper has handled them.
    super(torch.autograd.Function, kind).apply(attributes, len(results), *results, *sources)
    torch_compat.unsafe_set_version_counter(results, versions)


def without_history(args: Sequence[Any], positions: Sequence[int], *, is_end: bool) -> list[Any]:
    """Return ``args`` with those at ``positions`` detached.

    ``is_end``: no other argument requires grad. Autograd gives results a history only if an argument requires grad,
    so the first detached argument becomes a leaf, in place of the leaves that the graph makes.
    """
    detached = [*args]
    for position in positions:
        detached[position] = detached[position].detach()
    if is_end and positions:
        detached[positions[0]].requires_grad_()
    return detached
