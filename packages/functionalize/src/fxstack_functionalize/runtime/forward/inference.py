"""The wrapper around a compiled inference graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.options import AotOptions
from fxstack_functionalize.runtime.calling import Compiled, is_boxed, listed
from fxstack_functionalize.runtime.forward.modes import without_autocast, without_grad, without_views
from fxstack_functionalize.runtime.source import Source
from fxstack_functionalize.runtime.wrapper import wrapper
from fxstack_functionalize.trace import Shell

ROLE = "inference graph"


def inference_wrapper(shell: Shell, compiled: Compiled, options: AotOptions) -> Callable[..., Any]:
    """Return the callable with the captured graph's own signature."""
    info = shell.info
    boxed = is_boxed(compiled, ROLE) or info.autocast
    target = without_autocast(listed(compiled, ROLE)) if info.autocast else compiled
    enables_grad = not info.grad_mode and _enables_grad(shell)
    guarded = (info.grad_mode or enables_grad) and bool(info.grad_inputs)

    def compute(source: Source) -> None:
        statement = "flat = compiled([*args])" if boxed else "flat = compiled(*args)"
        with without_grad(source) if guarded else nullcontext(), without_views(source):
            source.add(statement, compiled=target)

    made = wrapper(shell, options, ROLE, compute)
    return torch.enable_grad()(made) if enables_grad else made


def _enables_grad(shell: Shell) -> bool:
    """Whether the graph turns grad mode on, so that later views of arguments have histories."""
    views = any(seen.requires_grad for seen in shell.info.outputs)
    return views and any(
        node.target is torch_compat.set_grad_enabled and node.args == (True,)
        for node in shell.captured.graph_module.graph.nodes
    )
