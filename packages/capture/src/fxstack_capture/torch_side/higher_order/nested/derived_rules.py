"""What all operators have in common whose functions the layers of ``torch.func`` change (``derivations``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from fxstack_capture.torch_side.higher_order.nested.differentiation import Function, Values
from fxstack_interchange.torch_facts.derivatives import is_float

Operator = Callable[..., Any]
_OPERATORS = torch.ops.higher_order


@dataclass(frozen=True, eq=False)
class Call:
    """A call of an operator, without its operands.

    ``record(call, operands)`` adds the node, below all layers. ``counts``: how many operands are carried, and how many
    are sliced. ``gradients``: the grad mode of the program.
    """

    record: Callable[[Call, Values], tuple[Any, ...]]
    operator: Operator
    functions: tuple[Function, ...]
    counts: tuple[int, ...]
    gradients: bool


def apply_rule(rule: type[torch.autograd.Function], *operands: object) -> tuple[Any, ...]:
    """Apply a rule under the active layers."""
    found: Any = cast("Any", rule).apply(*operands)
    return found if isinstance(found, tuple) else (found,)


class Context(torch.autograd.function.FunctionCtx):
    """The context of a function: what ``setup_context`` saves."""

    call: Call
    total: int
    """Number of operands."""
    floats: list[bool]
    """Which results are floating-point tensors."""
    is_tensor: list[bool]
    """Which saved values are tensors."""
    numbers: list[Any]
    """The other saved values."""
    saved_tensors: tuple[torch.Tensor, ...]
    needs_input_grad: tuple[bool, ...]


class Rule(torch.autograd.Function):
    """The common part of the operators. The first input is the ``Call``."""

    @staticmethod
    def forward(call: Call, *operands: torch.Tensor) -> tuple[Any, ...]:
        """Record the operator."""
        with torch.set_grad_enabled(call.gradients):
            return call.record(call, operands)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:
        """Save the operands, and the values that the forward has saved."""
        call, *operands = inputs
        ctx.call, ctx.total = call, len(operands)
        ctx.floats = [is_float(x) for x in output]
        carried = saved_count(call)
        first = output[:1] if call.operator is _OPERATORS.while_loop_stack_output else ()
        saved = [*operands, *first, *output[len(output) - carried :]]
        ctx.is_tensor = [isinstance(x, torch.Tensor) for x in saved]
        ctx.numbers = [x for x in saved if not isinstance(x, torch.Tensor)]
        tensors = [x for x in saved if isinstance(x, torch.Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.mark_non_differentiable(*(x for x in output if isinstance(x, torch.Tensor) and not is_float(x)))
        ctx.set_materialize_grads(call.operator is not _OPERATORS.while_loop_stack_output)


def saved_count(call: Call) -> int:
    """Return how many results at the end are values that the forward saves."""
    return 0 if call.operator in (_OPERATORS.cond, _OPERATORS.while_loop) else call.counts[0]


def saved(ctx: Context) -> tuple[list[Any], list[Any]]:
    """Return the operands, and the values that the forward has saved."""
    tensors, numbers = iter(ctx.saved_tensors), iter(ctx.numbers)
    values = [next(tensors) if is_tensor else next(numbers) for is_tensor in ctx.is_tensor]
    return values[: ctx.total], values[ctx.total :]


def needed(ctx: Context, operands: Values) -> list[bool]:
    """Return which operands get a gradient."""
    return [need and is_float(x) for x, need in zip(operands, ctx.needs_input_grad[1:], strict=True)]
