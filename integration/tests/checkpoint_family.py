"""Checkpoints of every kind, set in every place, around models of every kind: gradients beside eager.

A non-reentrant checkpoint exchanges by position what the forward saves with what a recomputation saves. So both must
run the same graph, whatever is compiled or called in between.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed._composable import checkpoint as composable
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

import fxstack

Run = Callable[..., torch.Tensor]


def _policy(_ctx: object, op: object, *_args: object, **_kwargs: object) -> CheckpointPolicy:
    saved = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


selection = functools.partial(create_selective_checkpoint_contexts, _policy)


def _nested(fn: Run, x: torch.Tensor) -> torch.Tensor:
    def inner(y: torch.Tensor) -> torch.Tensor:
        return checkpoint(fn, y.sin(), use_reentrant=False)

    return checkpoint(inner, x, use_reentrant=False)


def _without_early_stop(fn: Run, x: torch.Tensor) -> torch.Tensor:
    with set_checkpoint_early_stop(False):
        return checkpoint(fn, x, use_reentrant=False)


KINDS: dict[str, Run] = {
    "once": lambda fn, x: checkpoint(fn, x, use_reentrant=False),
    "reentrant": lambda fn, x: checkpoint(fn, x, use_reentrant=True),
    "to the end": _without_early_stop,
    "unchecked": lambda fn, x: checkpoint(fn, x, use_reentrant=False, determinism_check="none"),
    "selective": lambda fn, x: checkpoint(fn, x, use_reentrant=False, context_fn=selection),
    "nested": _nested,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "composable": {},
    "composable, to the end": {"early_stop": False},
    "composable, selective": {"context_fn": selection},
}
"""Arguments of the checkpoints that hooks of a module set."""


class Residual(nn.Module):
    """A block with the parts of a transformer's: a view, an operator in place, and a saved mask."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 8), nn.Linear(8, 4), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(self.norm(x)).relu_().view(-1, 2, 4).transpose(0, 1)
        y = torch.nn.functional.scaled_dot_product_attention(y, y, y)
        return x + self.second(y.transpose(0, 1).reshape(x.shape[0], 8)) * x.sigmoid()


class Breaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).sin() * x
        torch._dynamo.graph_break()
        return y.exp() * self.linear(y).tanh()


class Table(nn.Module):
    """The first call fills a table, as rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.tables = nn.Linear(4, 4), {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] not in self.tables:
            self.tables[x.shape[0]] = torch.linspace(0, 1, x.shape[0])[:, None]
        return self.linear(x).sin() * self.tables[x.shape[0]].cos() * x


def _twice() -> nn.Module:
    linear = nn.Linear(4, 4)
    return nn.Sequential(linear, nn.Tanh(), linear, nn.Softmax(-1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.Tanh()),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh()),
    "residual": Residual,
    "breaking": Breaking,
    "table": Table,
    "twice": _twice,
    "lazy": lambda: nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 4)),
}


def _outside(model: nn.Module, kind: str, compiled: Run) -> Run:
    inner = compiled(model)
    return lambda x: KINDS[kind](inner, x)


def _inside(model: nn.Module, kind: str, compiled: Run) -> Run:
    return compiled(lambda x: KINDS[kind](model, x.cos()) * x)


def _around(model: nn.Module, kind: str, compiled: Run) -> Run:
    inner = compiled(model)
    return lambda x: KINDS[kind](lambda y: inner(y.cos()).sin() * y, x)


def _hook(model: nn.Module, kind: str, compiled: Run) -> Run:
    """The output of a module is checkpointed by a forward hook of the program."""
    first = nn.Sequential(nn.Tanh())
    first.register_forward_hook(lambda _module, _args, y: KINDS[kind](model, y))
    return compiled(nn.Sequential(first, nn.Sigmoid()))


def _whole(model: nn.Module, kind: str, compiled: Run) -> Run:
    composable(model, **OPTIONS[kind])
    return compiled(model)


def _part(model: nn.Module, kind: str, compiled: Run) -> Run:
    composable(model, **OPTIONS[kind])
    return compiled(nn.Sequential(nn.Sigmoid(), model, nn.Tanh()))


def _below(model: nn.Module, kind: str, compiled: Run) -> Run:
    """The checkpointed module itself calls a compiled one."""
    inner = compiled(model)
    outer = nn.Sequential(nn.Sigmoid(), inner, nn.Tanh())
    composable(outer, **OPTIONS[kind])
    return outer


def _both(model: nn.Module, kind: str, compiled: Run) -> Run:
    """A checkpoint around the call, and another one on a part."""
    inner = _part(model, kind, compiled)
    return lambda x: checkpoint(inner, x, use_reentrant=False)


PLACES = {"outside": _outside, "inside": _inside, "around": _around, "hook": _hook}
MODULE_PLACES = {"whole": _whole, "part": _part, "below": _below, "both": _both}
ORDERS = ("each", "all", "backwards")


def cases() -> list[tuple[str, ...]]:
    """Return kind, place, model, and when the backwards run: after each call, or after all of them."""
    return [
        *itertools.product(KINDS, PLACES, MODELS, ORDERS),
        *itertools.product(OPTIONS, MODULE_PLACES, MODELS, ORDERS),
    ]


def _gradients(kind: str, place: str, name: str, order: str, compiled: Run) -> list[Any]:
    torch.manual_seed(0)
    model = MODELS[name]()
    torch.manual_seed(1)
    run = {**PLACES, **MODULE_PLACES}[place](model, kind, compiled)
    found: list[Any] = []
    for sizes in ((3, 5, 3), (6, 3, 7, 5)):
        inputs = [torch.linspace(-1, 2, 4 * n).view(n, 4).requires_grad_() for n in sizes]
        losses = []
        for x in inputs:
            losses.append((run(x) * x.detach()).sum())
            if order == "each":
                losses.pop().backward()
        for loss in losses[:: -1 if order == "backwards" else 1]:
            loss.backward()
        found += [x.grad for x in inputs]
        found += [p.grad.clone() for p in model.parameters()]
    return found


def differences(kind: str, place: str, name: str, order: str, backend: str = "aot_eager") -> str | None:
    """Return what differs from eager, None if nothing does."""

    def compiled(fn: Run) -> Run:
        return fxstack.compile(fn, backend=backend)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = _gradients(kind, place, name, order, lambda fn: fn)
        except RuntimeError:
            return None  # eager refuses it: a write to what a selective checkpoint has kept
        try:
            got = _gradients(kind, place, name, order, compiled)
        except Exception as error:  # noqa: BLE001 - every error of a compiled call is a difference
            return f"{type(error).__name__}: {error}"[:300]
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        if not torch.allclose(one, other, rtol=1e-4, atol=1e-4):
            return f"gradient {number} is off by {(one - other).abs().max():.3g}"
    return None
