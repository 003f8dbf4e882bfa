"""What the rules of the gradients of operators with functions share: saved operands, and traced nested graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from fxstack_functionalize.operators.selected_values import Values
from fxstack_functionalize.torch_compat import (
    current_exclude_keys,
    current_include_keys,
    materialize_as_graph,
)

Body = Callable[..., Any]


class Keys:
    """The dispatch keys of the forward, under which nested graphs of the backward are traced."""

    def __init__(self) -> None:
        self._keys = current_include_keys(), current_exclude_keys()

    def graph(self, function: Body, args: Values) -> Body:
        """Trace a function with the metadata of ``args``."""
        traced: Body = materialize_as_graph(function, tuple(args), *self._keys, force_enable_grad=True)
        return traced


class Context(torch.autograd.function.FunctionCtx):
    """The context of a rule: what the forward saves."""

    keys: Keys
    is_tensor: list[bool]
    """Which saved values are tensors."""
    numbers: list[Any]
    """The other saved values."""
    floats: list[bool]
    """Which results are floating-point tensors."""
    branches: tuple[Body, Body]
    pred: object
    body: Body
    count: int
    counts: tuple[int, int]
    stacks: bool
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]


class Rule(torch.autograd.Function):
    """Saves the operands of an operator, with numbers among them, for the backward."""

    @staticmethod
    def save(ctx: Context, operands: Values) -> None:
        """Save the operands and the present dispatch keys for the backward.

        Autograd saves the tensors, and raises if the program changes a tensor before the backward.
        """
        ctx.keys = Keys()
        ctx.is_tensor = [isinstance(x, Tensor) for x in operands]
        ctx.numbers = [x for x in operands if not isinstance(x, Tensor)]
        ctx.save_for_backward(*(x for x in operands if isinstance(x, Tensor)))

    @staticmethod
    def saved(ctx: Context) -> list[Any]:
        """Return the saved operands."""
        tensors, numbers = iter(ctx.saved_tensors), iter(ctx.numbers)
        return [next(tensors) if is_tensor else next(numbers) for is_tensor in ctx.is_tensor]


def apply_rule(rule: type[Rule], *args: object) -> Any:
    """Apply a rule."""
    return cast("Any", rule).apply(*args)
