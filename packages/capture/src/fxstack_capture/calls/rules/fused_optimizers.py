"""What the kernels of fused optimizers (``Adam(fused=True)``, ...) do, in operators that every later stage knows.

The kernels change lists of tensors in place, which functionalisation refuses for empty lists, and have no fake kernels on
CPU. They compute in float32 what has less precision, and round when they store; bias corrections are double precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.registered import traced_as
from fxstack_capture.calls.table import RuleTable

if TYPE_CHECKING:
    from fxstack_capture.trace import Trace

Number: TypeAlias = "float | Tensor"
_HALF = torch.float16.itemsize


class _Skipping:
    """Reads and writes what a kernel does, which does nothing where the gradients were found to be infinite."""

    def __init__(self, grad_scale: Tensor | None, found_inf: Tensor | None) -> None:
        self.scale = grad_scale
        self.skipped = None if found_inf is None else found_inf == 1

    def store(self, target: Tensor, value: Tensor) -> None:
        value = value.to(target.dtype)
        target.copy_(value if self.skipped is None else torch.where(self.skipped, target, value))

    def gradient(self, grad: Tensor, *, maximize: bool) -> Tensor:
        """Without its scale, which the kernels take out of the stored one too."""
        value = _wide(grad)
        if self.scale is not None:
            value = value / self.scale.to(value.dtype)
            self.store(grad, value)
        return -value if maximize else value


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype is torch.float64 else x.float()


def _adam(
    lists: tuple[Any, ...],
    lr: Number,
    betas: tuple[Number, Number],
    rest: tuple[float, bool, float, bool, bool],
    kernel: _Skipping,
) -> None:
    """``rest`` is the weight decay, whether it is decoupled, eps, amsgrad and maximize."""
    params, grads, averages, squares, largest, steps = lists
    (first, second), (weight_decay, decoupled, eps, amsgrad, maximize) = betas, rest
    for index, stored in enumerate(params):
        param, grad = _wide(stored), kernel.gradient(grads[index], maximize=maximize)
        step = steps[index].double()
        size = lr / (1 - first**step)
        root = (1 - second**step).sqrt().to(param.dtype)
        if weight_decay and decoupled:
            param = param * (1 - lr * weight_decay)
        elif weight_decay:
            grad = grad + param * weight_decay
        average = _wide(averages[index])
        average = average + (grad - average) * (1 - first)
        square = _wide(squares[index]) * second + grad * grad * (1 - second)
        kernel.store(averages[index], average)
        kernel.store(squares[index], square)
        if amsgrad:
            square = torch.maximum(_wide(largest[index]), square)
            kernel.store(largest[index], square)
        denominator = square.sqrt() / root + eps
        kernel.store(stored, param - size.to(param.dtype) * average / denominator)


def _fused_adam(
    *lists: Any,
    lr: Number,
    beta1: Number,
    beta2: Number,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    decoupled: bool = False,
) -> None:
    kernel = _Skipping(grad_scale, found_inf)
    _adam(lists, lr, (beta1, beta2), (weight_decay, decoupled, eps, amsgrad, maximize), kernel)


def _fused_sgd(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: Number,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    kernel = _Skipping(grad_scale, found_inf)
    for index, stored in enumerate(params):
        param, grad = _wide(stored), kernel.gradient(grads[index], maximize=maximize)
        if weight_decay:
            grad = grad + param * weight_decay
        if momentum:
            buffer = grad
            if not is_first_step:
                buffer = _wide(buffers[index]) * momentum + grad * (1 - dampening)
            kernel.store(buffers[index], buffer)
            grad = grad + buffer * momentum if nesterov else buffer
        kernel.store(stored, param - grad * lr)


def _fused_adagrad(
    params: list[Tensor],
    grads: list[Tensor],
    sums: list[Tensor],
    steps: list[Tensor],
    *,
    lr: Number,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    kernel = _Skipping(grad_scale, found_inf)
    for index, stored in enumerate(params):
        param, grad = _wide(stored), kernel.gradient(grads[index], maximize=maximize)
        rate = lr / (1 + (steps[index].double() - 1) * lr_decay)
        if weight_decay:
            grad = grad + param * weight_decay
        total = _wide(sums[index]) + grad * grad
        kernel.store(sums[index], total)
        kernel.store(stored, param - rate.to(param.dtype) * grad / (total.sqrt() + eps))


def _adamw_rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return trace.calls.call(_fused_adam, args, {**kwargs, "decoupled": True})


def _sgd_rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Half precision is left to torch's kernel, which reads momentum before it was written (torch 2.13)."""
    if any(param.dtype.itemsize <= _HALF for param in args[0]):
        raise graph_break("unsupported-call", "torch._fused_sgd_ of half precision")
    return trace.calls.call(_fused_sgd, args, kwargs)


RULES: RuleTable = RuleTable()
RULES.add(torch._fused_adam_, traced_as(_fused_adam))
RULES.add(torch._fused_adamw_, _adamw_rule)
RULES.add(torch._fused_sgd_, _sgd_rule)
RULES.add(torch._fused_adagrad_, traced_as(_fused_adagrad))
