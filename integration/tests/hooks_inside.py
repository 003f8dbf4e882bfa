"""Saved-tensor hooks that a compiled function enters itself: every pair with every place, beside eager."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.distributed._composable import checkpoint

import fxstack

Block = Callable[[torch.Tensor], torch.Tensor]


def by_position() -> saved_tensors_hooks:
    """A hook that keeps numbers in place of tensors."""
    kept: list[torch.Tensor] = []
    return saved_tensors_hooks(
        lambda t: kept.append(t) or len(kept) - 1, lambda place: kept[place] * len(kept)
    )


HOOKS: dict[str, Callable[[], Any]] = {
    "twice": lambda: saved_tensors_hooks(lambda t: t * 2, lambda t: t),
    "bfloat16": lambda: saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t.float()),
    "rounds": lambda: saved_tensors_hooks(lambda t: t, torch.round),
    "position": by_position,
    "on the CPU": save_on_cpu,
}
FUNCTIONS: dict[str, Block] = {
    "mul, sin": lambda x: (x * x).sin(),
    "linear": lambda x: torch.nn.functional.linear(x, x).tanh() @ x,
    "softmax": lambda x: x.exp().softmax(-1) * x.cos(),
}


def _around(fn: Block, hooks: Callable[[], Any]) -> Block:
    def run(x: torch.Tensor) -> torch.Tensor:
        with hooks():
            return fn(x)

    return run


def _middle(fn: Block, hooks: Callable[[], Any]) -> Block:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x.cos() * x
        with hooks():
            y = fn(y)
        return y * y.tanh()

    return run


def _module(fn: Block, hooks: Callable[[], Any]) -> Block:
    """Enter the hooks before the forward of a module, and leave them after it, as checkpoints do."""

    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return fn(x)

    layer, active = Layer(), []

    def enter(*_: object) -> None:
        active.append(hooks())
        active[-1].__enter__()

    layer.register_forward_pre_hook(enter)
    layer.register_forward_hook(lambda *_: active.pop().__exit__(None, None, None))
    return torch.nn.Sequential(torch.nn.Sigmoid(), layer, torch.nn.Tanh())


def _composable(fn: Block, _hooks: Callable[[], Any]) -> Block:
    """A checkpoint set by module hooks; only its own hooks are active."""
    module = _module(fn, nullcontext)
    checkpoint(module[1])
    return module


def _twice(fn: Block, hooks: Callable[[], Any]) -> Block:
    """The function runs outside of the hooks, then inside: two sets of guards on the same code."""
    inside = _around(fn, hooks)
    return lambda x: inside(fn(x)) + fn(x)


PLACES = {"around": _around, "middle": _middle, "module": _module, "composable": _composable, "twice": _twice}


def cases() -> list[tuple[str, ...]]:
    """Return hooks, function, place, and the hooks around the whole call."""
    return list(itertools.product(HOOKS, FUNCTIONS, PLACES, ("none", "on the CPU")))


def differences(hooks: str, name: str, place: str, outer: str, backend: str = "aot_eager") -> str | None:
    """Return what differs from eager, None if nothing does."""
    fn = PLACES[place](FUNCTIONS[name], HOOKS[hooks])

    def gradient(run: Block) -> torch.Tensor:
        x = torch.linspace(-1, 2, 9).view(3, 3).requires_grad_()
        if outer == "none":
            y = run(x)
        else:
            with HOOKS[outer]():
                y = run(x)
        y.sum().backward()
        return x.grad

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, compiled = gradient(fn), fxstack.compile(fn, backend=backend)
        for _ in range(2):
            got = gradient(compiled)
            if not torch.allclose(got, expected, atol=1e-6):
                return f"{got} is not {expected}"
    return None
