"""Compiled functions whose inputs or results the program changes in place before the backward.

A form computes with an operator; ``difference`` compares the gradients, or that the backward raises, with eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import fxstack

Operator = Callable[[torch.Tensor], torch.Tensor]
Form = Callable[[Operator, torch.Tensor, torch.Tensor], Any]

OPERATORS = (
    "exp log sin cos tan tanh sigmoid sqrt rsqrt square reciprocal abs relu neg erf expm1 log1p atan asinh floor "
    "softmax log_softmax gelu silu softplus elu hardtanh hardswish leaky_relu logsigmoid mish selu celu softsign"
).split()


def _operator(name: str) -> Operator:
    fn = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    return (lambda x: fn(x, -1)) if "softmax" in name else fn


FORMS: dict[str, Form] = {
    "alone": lambda op, x, _k: (op(x),),
    "scaled": lambda op, x, _k: (op(x * 2 + 1),),
    "constant": lambda op, x, k: (x * op(k + 1),),
    "product": lambda op, x, k: (op(x * k) @ k,),
    "cast": lambda op, x, _k: (op(x.double()).float(),),
    "joined": lambda op, x, k: (op(torch.cat([x, k])),),
    "result": lambda op, x, _k: (lambda y: (y, op(y)))(x + 1),
    "cloned": lambda op, x, _k: (lambda y: (y, op(y.clone())))(x + 1),
    "shifted": lambda op, x, _k: (lambda y: (y, op(y - 0.5)))(x + 1),
    "viewed": lambda op, x, k: (lambda y: (y.view(2, 8), op(y.t().clone()) @ k))(x + 1),
    "narrowed": lambda op, x, _k: (lambda y: (y, op(y.narrow(0, 1, 2).clone())))(x.softmax(-1)),
    "dropped": lambda op, x, _k: (lambda y: (y, op(torch.dropout(y.clone(), 0.5, True))))(x + 1),  # noqa: FBT003
}
WRITTEN = ("input", "constant", "result")


def cases() -> list[tuple[str, str, str]]:
    return [(form, op, target) for form in FORMS for op in OPERATORS for target in WRITTEN]


def _gradient(program: Callable[..., Any], written: str) -> Any:
    torch.manual_seed(0)
    leaf = (torch.rand(4, 4) + 0.1).requires_grad_()
    x, k = leaf * 1.0, torch.rand(4, 4) + 0.1
    results = program(x, k)
    with torch.set_grad_enabled(written == "result"):
        {"input": x, "constant": k, "result": results[0]}[written][1:].mul_(3)
    try:
        sum((result * torch.arange(result.numel()).view(result.shape)).sum() for result in results).backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return leaf.grad


def difference(form: str, op: str, written: str, backend: Any = "inductor") -> str | None:
    """Return how a compiled program differs from eager; None if it does not, or computes where eager raises."""

    def program(x: torch.Tensor, k: torch.Tensor) -> Any:
        return FORMS[form](_operator(op), x, k)

    eager = _gradient(program, written)
    compiled = _gradient(fxstack.compile(program, backend=backend, fullgraph=True), written)
    if eager is True or eager is compiled:
        return None
    return (
        None
        if torch.is_tensor(compiled) and torch.allclose(eager, compiled, rtol=1e-4, equal_nan=True)
        else f"{eager} {compiled}"
    )
