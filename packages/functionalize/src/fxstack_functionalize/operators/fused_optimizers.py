"""Steps of fused optimizers as ordinary operators: functionalisation refuses in-place changes of lists.

Source: ``aten/src/ATen/native/cpu/Fused*Kernel.cpp``. As in these kernels, half precision is computed in
float32 and rounded when stored, bias corrections are double, and version counters do not rise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

ParameterStep: TypeAlias = Callable[..., None]
"""Changes a parameter and its state, given as one argument for each list of the operator; None for an empty list."""
Number: TypeAlias = float | torch.Tensor


class _Step:
    """State of one optimizer call: the gradient scale, and whether a gradient is infinite."""

    def __init__(self, scale: torch.Tensor | None, found_inf: torch.Tensor | None) -> None:
        self._scale = scale
        self._found_inf = found_inf

    def gradient(self, grad: torch.Tensor) -> torch.Tensor:
        wide = _wide(grad)
        return wide if self._scale is None else wide / self._scale

    def keep(self, target: torch.Tensor, value: torch.Tensor) -> None:
        """Write ``value``, or the old value if a gradient is infinite."""
        if self._found_inf is not None:
            value = torch.where(self._found_inf == 1, _wide(target), value)
        target.data.copy_(value)

    def finish(self, grad: torch.Tensor) -> None:
        """If there is a gradient scale, divide the gradient in place by the scale, as the operator does."""
        if self._scale is not None:
            self.keep(grad, self.gradient(grad))

    def slope(
        self, grad: torch.Tensor, value: torch.Tensor, weight_decay: float, *, maximize: bool
    ) -> torch.Tensor:
        """Return the direction of descent: the gradient and the weight decay."""
        slope = self.gradient(grad)
        slope = -slope if maximize else slope
        return slope + value * weight_decay if weight_decay != 0 else slope


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in {torch.float16, torch.bfloat16} else tensor


def _number(value: Number) -> Number:
    """Return the learning rate: a tensor in double precision, a Python number unchanged."""
    return value.double() if isinstance(value, torch.Tensor) else value


def adam(
    *,
    lr: Number,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
    decoupled: bool = False,
) -> ParameterStep:
    """Return the step of ``torch._fused_adam_`` (with ``decoupled``: ``torch._fused_adamw_``) for one parameter."""
    rate, step = _number(lr), _Step(grad_scale, found_inf)

    def change(
        param: torch.Tensor, grad: torch.Tensor, average: torch.Tensor, square: torch.Tensor, *others: Any
    ) -> None:
        largest, count = others
        steps = count.double()
        value = _wide(param)
        slope = step.slope(grad, value, 0.0 if decoupled else weight_decay, maximize=maximize)
        if weight_decay != 0 and decoupled:
            value = value - _like(rate * weight_decay, value) * value
        mean = torch.lerp(_wide(average), slope, 1 - beta1)
        variance = _wide(square) * beta2 + slope * slope * (1 - beta2)
        step.keep(average, mean)
        step.keep(square, variance)
        if largest is not None and amsgrad:
            variance = torch.maximum(_wide(largest), variance)
            step.keep(largest, variance)
        size = _like(rate / (1 - beta1**steps), value)
        root = _like((1 - beta2**steps).sqrt(), value)
        step.keep(param, value - size * mean / (variance.sqrt() / root + eps))
        step.finish(grad)

    return change


def adamw(**options: Any) -> ParameterStep:
    """Return the step of ``torch._fused_adamw_`` for one parameter."""
    return adam(**options, decoupled=True)


def sgd(
    *,
    weight_decay: float,
    momentum: float,
    lr: Number,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> ParameterStep:
    """Return the step of ``torch._fused_sgd_`` for one parameter."""
    rate, step = _number(lr), _Step(grad_scale, found_inf)

    def change(param: torch.Tensor, grad: torch.Tensor, buffer: torch.Tensor | None) -> None:
        value = _wide(param)
        slope = step.slope(grad, value, weight_decay, maximize=maximize)
        if buffer is not None and momentum != 0:
            mean = slope if is_first_step else _wide(buffer) * momentum + slope * (1 - dampening)
            step.keep(buffer, mean)
            slope = slope + mean * momentum if nesterov else mean
        step.keep(param, value - _like(rate, value) * slope)
        step.finish(grad)

    return change


def adagrad(
    *,
    lr: Number,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> ParameterStep:
    """Return the step of ``torch._fused_adagrad_`` for one parameter."""
    rate, step = _number(lr), _Step(grad_scale, found_inf)

    def change(param: torch.Tensor, grad: torch.Tensor, total: torch.Tensor, count: torch.Tensor) -> None:
        value = _wide(param)
        slope = step.slope(grad, value, weight_decay, maximize=maximize)
        squares = _wide(total) + slope * slope
        step.keep(total, squares)
        size = _like(rate / (1 + (count.double() - 1) * lr_decay), value)
        step.keep(param, value - size * slope / (squares.sqrt() + eps))
        step.finish(grad)

    return change


def _like(number: Number, value: torch.Tensor) -> Number:
    """Return a Python number unchanged; a 0-d tensor rounded once to the dtype of ``value``."""
    return number.to(value.dtype) if isinstance(number, torch.Tensor) else number


_STEPS: Mapping[str, Callable[..., ParameterStep]] = {
    "_fused_adam_": adam,
    "_fused_adamw_": adamw,
    "_fused_sgd_": sgd,
    "_fused_adagrad_": adagrad,
}


def _names() -> dict[Any, Callable[..., ParameterStep]]:
    """Map each function, operator packet and overload of a fused optimizer to its step."""
    steps: dict[Any, Callable[..., ParameterStep]] = {}
    for name, step in _STEPS.items():
        packet = getattr(torch.ops.aten, name)
        forms = [getattr(packet, overload) for overload in packet.overloads()]
        steps.update(dict.fromkeys([getattr(torch, name), packet, *forms], step))
    return steps


FUSED = _names()
"""Maps the fused operators, by all names by which a captured graph may call them, to functions from the options to the step
of one parameter."""
