"""New leaves that the graph returns: ``zeros_like(x, requires_grad=True)``, ``y.detach().requires_grad_()``.

If no other output and no input depends on such a leaf, it is an ordinary result, on which the wrapper calls
``requires_grad_()`` after the compiled graph has run. Otherwise the backward would have to accumulate its
gradient, which is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from fxstack_functionalize.aliasing.aliases import grad_fn_of
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.tracing.session import TracedInput
from fxstack_functionalize.views.differentiable_bases import leaves_behind, root_of

# Limits: refused: new leaves as outputs of which other outputs are views or whose gradient others pass on,
# and new leaves behind results if no input requires a gradient.


def set_aside(
    outputs: Mapping[int, torch.Tensor], inputs: Sequence[TracedInput], known: Collection[int]
) -> set[int]:
    """Clear ``requires_grad`` of the new leaves among ``outputs`` (by position, each once). Return their ids.

    ``known``: ids of tensors that are inputs or represent inputs.

    Raises:
        UnsupportedGraphError: if another output or an input depends on a new leaf.
    """
    found = {position: value for position, value in outputs.items() if _is_leaf(value, known)}
    if not found:
        return set()
    leaves = {id(value) for value in found.values()}
    others = [value for value in outputs.values() if id(value) not in leaves]
    others += [traced.argument for traced in inputs if traced.inner is not None]
    functions = [grad_fn_of(tensor) for tensor in others if tensor.requires_grad]
    reached = {id(root_of(tensor)) for tensor in others} | set(map(id, leaves_behind(functions)))
    for position, value in found.items():
        if value._base is not None or id(value) in reached:
            raise UnsupportedGraphError(
                f"output {position} is a new leaf, made by requires_grad_() in the graph, and others depend on it",
                why="its gradient would have to be accumulated inside the compiled backward",
                fix="call requires_grad_() on the result, outside the compiled function",
            )
    for value in found.values():
        value.requires_grad_(requires_grad=False)
    return leaves


def check_inputs(info: GraphInfo) -> None:
    """Refuse a graph whose only leaves are new: autograd calls a custom function's backward only for inputs.

    Raises:
        UnsupportedGraphError: if no input requires a gradient.
    """
    if not info.grad_inputs:
        raise UnsupportedGraphError(
            "an output has a history, but no input of the graph requires a gradient",
            why="what is made by requires_grad_() in the graph is the only leaf behind it",
            fix="call requires_grad_() outside the compiled function, or detach the output",
        )


def _is_leaf(value: torch.Tensor, known: Collection[int]) -> bool:
    # A view of a tensor with a gradient reports the ``grad_fn`` and ``requires_grad`` of that tensor.
    owner = root_of(value) if root_of(value).requires_grad else value
    return owner.requires_grad and grad_fn_of(owner) is None and id(owner) not in known
