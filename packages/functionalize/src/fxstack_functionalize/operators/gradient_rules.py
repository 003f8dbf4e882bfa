"""What the gradient rules of operators that call functions save for the backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import GraphModule

from fxstack_functionalize.torch_compat import (
    FakeTensor,
    ForceDispatchKeyGuard,
    FunctionalTensor,
    current_exclude_keys,
    current_include_keys,
    from_functional_tensor,
    functional_sync,
    materialize_as_graph,
)
from fxstack_interchange.torch_facts.derivatives import is_float

Body = Callable[..., Any]
Values = Sequence[Any]


def needs_gradient(values: Iterable[object]) -> bool:
    """Return whether an operator of ``values`` gets a gradient."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in values)


def float_flags(values: Values, needs: Iterable[bool]) -> list[bool]:
    """Return for each value whether it is a tensor with a gradient that is needed."""
    return [need and is_float(value) for value, need in zip(values, needs, strict=True)]


class DispatchKeys:
    """The dispatch keys of the forward, under which nested graphs of the backward are traced."""

    def __init__(self) -> None:
        self._keys = current_include_keys(), current_exclude_keys()

    def graph(self, function: Body, args: Values) -> Body:
        """Return a graph of the function, with the metadata of ``args``. In eager the function itself runs, under the keys."""
        if not any(isinstance(x, (FunctionalTensor, FakeTensor)) for x in args):
            return partial(self._run, function)
        traced: Body = self.traced(function, args)
        return traced

    def traced(self, function: Body, args: Values) -> GraphModule:
        """Trace a function with the metadata of ``args``."""
        traced: GraphModule = materialize_as_graph(function, tuple(args), *self._keys, force_enable_grad=True)
        return traced

    def _run(self, function: Body, *values: object) -> Any:
        with ForceDispatchKeyGuard(*self._keys):  # an operator calls its functions below autograd
            return function(*values)


class RuleContext(torch.autograd.function.FunctionCtx):
    """The context of a rule: what the forward saves."""

    keys: DispatchKeys
    is_tensor: list[bool]
    """Which saved values are tensors."""
    numbers: list[Any]
    """The other saved values."""
    floats: list[bool]
    """Which results are floating-point tensors."""
    branches: tuple[Body, Body]
    pred: object
    body: Body
    test: Body
    """The condition of a loop."""
    count: int
    counts: tuple[int, int]
    stacks: bool
    values: list[Tensor]
    """The saved tensors; those without a gradient are as they were in the forward."""
    versions: list[tuple[Tensor, int]]
    """The saved tensors of which ``values`` has no copy, and their version counters."""
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]


class Rule(torch.autograd.Function):
    """Saves the operands of an operator, with numbers among them, for the backward."""

    @staticmethod
    def save(ctx: RuleContext, operands: Values) -> None:
        """Save the operands and the present dispatch keys for the backward.

        Autograd saves the tensors, and raises if the program changes one that has gradients before the backward.
        """
        tensors = [x for x in operands if isinstance(x, Tensor)]
        ctx.keys = DispatchKeys()
        ctx.is_tensor = [isinstance(x, Tensor) for x in operands]
        ctx.numbers = [x for x in operands if not isinstance(x, Tensor)]
        ctx.values = [x if is_float(x) else _as_now(x) for x in tensors]
        ctx.versions = [(x, x._version) for x, value in zip(tensors, ctx.values, strict=True) if x is value]
        ctx.save_for_backward(*tensors)

    @staticmethod
    def saved(ctx: RuleContext) -> list[Any]:
        """Return the saved operands."""
        try:
            values: Values = ctx.saved_tensors
        except RuntimeError:
            # The same loop in plain Python saves no counters and conditions, and the program may change them.
            if any(x._version != version for x, version in ctx.versions):
                raise
            values = ctx.values
        tensors, numbers = iter(values), iter(ctx.numbers)
        return [next(tensors) if is_tensor else next(numbers) for is_tensor in ctx.is_tensor]


def _as_now(tensor: Tensor) -> Tensor:
    """Return a tensor with the present value, which later writes to ``tensor`` do not change.

    Outside of a functional trace nothing is known of later writes: return ``tensor``.
    """
    if not isinstance(tensor, FunctionalTensor):
        return tensor
    functional_sync(tensor)
    return cast("Tensor", FunctionalTensor.to_functional(from_functional_tensor(tensor.elem)))


def apply_rule(rule: type[Rule], *args: object) -> Any:
    """Apply a rule."""
    return cast("Any", rule).apply(*args)
