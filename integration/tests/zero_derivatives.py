"""Second derivatives inside of compiled functions, of every operator behind every kind of view, beside eager.

The second derivative of many operators is zero or undefined (``abs``, rounding, comparisons, losses). ``crashed``
runs each case in a process of its own, because a mistake there ends the process.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import fxstack

grad = torch.autograd.grad

VIEWS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "none": (lambda t: t.clone(), lambda x, _: x.clone()),
    "view": (lambda t: t.flatten(), lambda x, shape: x.view(shape)),
    "reshape": (
        lambda t: torch.stack((t.flatten(), t.flatten()), -1),
        lambda x, shape: x[:, 0].reshape(shape),
    ),
    "transpose": (
        lambda t: t.movedim(0, -1).clone() if t.dim() else t.clone(),
        lambda x, _: x.movedim(-1, 0) if x.dim() else x,
    ),
    "expand": (lambda t: t[None].clone(), lambda x, shape: x.expand(2, *shape)[1]),
    "select": (lambda t: torch.stack((t, t)), lambda x, _: x.select(0, 1)),
    "as_strided": (lambda t: t.contiguous().clone(), lambda x, _: x.as_strided(x.shape, x.stride())),
    "unfold": (lambda t: torch.stack((t, t)), lambda x, _: x.unfold(0, 1, 1)[0, ..., 0]),
}
"""How a leaf is made of a tensor, and how a view of the leaf has the tensor's shape again."""

REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda y: y.sum(),
    "mean": lambda y: y.mean(),
    "norm": lambda y: y.view(-1).pow(2).sum() if y.is_contiguous() else y.pow(2).sum(),
    "max": lambda y: y.reshape(-1).amax() if y.numel() else y.sum(),
    "l1": lambda y: y.reshape(1, -1).abs().sum(-1).mean(),
}
RANDOM = (
    "dropout",
    "rrelu",
    "normal",
    "rand",
    "multinomial",
    "bernoulli",
    "empty",
    "cauchy",
    "exponential",
    "uniform",
)
OPERATORS = {
    f"{op.name} {op.variant_test_name}".strip(): op
    for op in op_db
    if op.supports_autograd
    and torch.float32 in op.supported_backward_dtypes("cpu")
    and not any(r in op.name for r in RANDOM)
}


def cases() -> list[tuple[str, str, str]]:
    """Return every operator with every view; the reductions take turns."""
    reductions = list(REDUCTIONS)
    return [
        (name, view, reductions[(row + column) % len(reductions)])
        for row, name in enumerate(OPERATORS)
        for column, view in enumerate(VIEWS)
    ]


def differences(name: str, view: str, reduction: str, backend: str = "aot_eager") -> str | None:
    """Return what differs from eager, None if nothing does or the operator takes no tensor."""
    op = OPERATORS[name]
    torch.manual_seed(0)
    sample = next(iter(op.sample_inputs("cpu", torch.float32, requires_grad=False)))
    if not isinstance(sample.input, torch.Tensor) or not sample.input.is_floating_point():
        return None
    shape, (to_leaf, of_leaf) = sample.input.shape, VIEWS[view]

    def first(x: torch.Tensor) -> torch.Tensor:
        found = pytree.tree_leaves(op(of_leaf(x, shape), *sample.args, **sample.kwargs))
        y = REDUCTIONS[reduction](next(t for t in found if t.requires_grad))
        return grad(y, x, create_graph=True)[0]

    def outcome(fn: Callable[..., Any]) -> Any:
        x = to_leaf(sample.input).requires_grad_()
        try:
            g = fn(x)
            second = grad(g.sin().sum(), x, allow_unused=True)[0] if g.requires_grad else None
        except Exception as error:  # what is raised is compared
            return f"{type(error).__name__}: {error}"
        return g.detach(), second

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = outcome(first)
        if isinstance(expected, str):
            return None
        actual = outcome(fxstack.compile(first, backend=backend))
    if isinstance(actual, str):
        return actual
    for got, wanted in zip(actual, expected, strict=True):
        if (got is None) != (wanted is None):
            return f"{got} is not {wanted}"
        if wanted is not None and not torch.allclose(got, wanted, rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"{got.flatten()[:4]} is not {wanted.flatten()[:4]}"
    return None


def crashed(*case: str) -> str | None:
    """Return ``differences`` of the case in a process of its own, or how the process ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        found = "the child failed"
        try:
            found = differences(*case) or ""
        finally:
            os.write(write, found.encode()[:4000])
            os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read) as told:
        text = told.read()
    return f"the process ended with signal {status}" if status else text or None
