"""Gradients and tangents of one function, for operators under layers of ``torch.func``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_capture.torch_compat import functorch
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapped
from fxstack_interchange.torch_facts.derivatives import as_gradient, chosen, is_float

Function = Callable[..., Any]
Values = Sequence[Any]


def _of_active(function: Function, args: Values, active: Sequence[bool]) -> Function:
    """Return the floating-point results of ``function`` as a function of the arguments in ``active``."""

    def of_active(*values: torch.Tensor) -> tuple[Any, ...]:
        remaining = iter(values)
        given = [next(remaining) if flag else value for value, flag in zip(args, active, strict=True)]
        return tuple(x for x in function(*given) if is_float(x))

    return of_active


def pull_back(function: Function, args: Values, active: Sequence[bool], gradients: Values) -> tuple[Any, ...]:
    """Return the gradients of the arguments in ``active``, from those of the floating-point results."""
    results, back = torch.func.vjp(_of_active(function, args, active), *chosen(args, active))
    found: tuple[Any, ...] = back(tuple(map(as_gradient, gradients, results)))
    return found


def push_forward(
    function: Function, args: Values, active: Sequence[bool], tangents: Values
) -> tuple[Any, ...]:
    """Return all results of ``function``, then the tangents of the floating-point results."""
    # A gradient is linear in the gradients of the results, so its own gradient is the derivative. ``torch.func.jvp``
    # would need a second level of forward-mode AD, which torch does not have.
    results, back = torch.func.vjp(_of_active(function, args, active), *chosen(args, active))
    _, forward = torch.func.vjp(lambda *weights: back(weights), *(torch.zeros_like(x) for x in results))
    return (*function(*args), *forward(tuple(tangents)))


def as_tuple(function: Function) -> Function:
    """Return ``function`` with a tuple as result."""

    def call(*args: torch.Tensor) -> tuple[Any, ...]:
        found = function(*args)
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)

    return call


def has_gradient(value: object) -> bool:
    """Return whether a layer of ``torch.func.grad`` or ``vjp`` tracks a value."""
    while isinstance(value, torch.Tensor) and is_wrapped(value):
        if functorch.is_gradtrackingtensor(value) and value.requires_grad:
            return True
        value = functorch.get_unwrapped(value)
    return False


def saving(body: Function, carries: int) -> Function:
    """Return the function that the rule of ``scan`` records: the values that it carries are further results."""
    return lambda *values: (*body(*values), *(x.clone() for x in values[:carries]))
