"""Run calls of a compiled callable under torch's compiled autograd
(``torch._dynamo.config.compiled_autograd``).

The graph of each backward pass inside of such a call is compiled in the same way as the callable.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import torch

from fxstack_capture.annotations import disable
from fxstack_capture.calls.rules.torch.compiled_autograd import CALLBACKS
from fxstack_capture.options import CaptureOptions
from fxstack_interchange.torch_facts.compiled_autograd import MODULE

_INPUTS: Final = ["inputs", "sizes", "scalars", "hooks", "packed_data"]
"""The names of the inputs of a graph from torch's compiled autograd."""


def is_backward_pass(fn: object) -> bool:
    """Whether ``fn``, an argument of ``optimize``, is the graph of a backward pass from torch's compiled
    autograd.
    """
    if not isinstance(fn, torch.fx.GraphModule):
        return False
    return [node.target for node in fn.graph.find_nodes(op="placeholder")] == _INPUTS


def around(
    fn: Callable[..., Any], recompile: Callable[[Any], Any], options: CaptureOptions
) -> Callable[..., Any]:
    """Return a function that calls ``fn`` under compiled autograd. ``optimize`` wraps each callable in this
    function.

    ``recompile`` compiles the graphs of backward passes. If the option ``compiled_autograd`` is off, return
    ``fn``.
    """
    if not options.compiled_autograd:
        return fn
    # this import is allowed: the program has asked for this part of torch's compiler
    enable = import_module(MODULE)._enable
    dynamic = bool(options.dynamic)

    def call(*args: object, **kwargs: object) -> Any:
        mode = enable(recompile, dynamic=dynamic, ignore_active_disable_ctx=False)
        enter(mode)
        try:
            return fn(*args, **kwargs)
        finally:
            leave(mode)

    return call


def with_callbacks(backward_pass: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs ``backward_pass``, and then the callbacks that its hooks have queued.

    If the graph has no graph break, the graph itself runs the callbacks, and none is left.
    """

    def call(*args: object, **kwargs: object) -> Any:
        outer = len(CALLBACKS)  # these callbacks belong to an outer backward pass
        try:
            result = backward_pass(*args, **kwargs)
            run_callbacks(outer)
        finally:
            del CALLBACKS[outer:]
        return result

    return call


@disable
def run_callbacks(outer: int) -> None:
    """Run the callbacks after the first ``outer`` callbacks of the queue, in the order in which they were
    queued.
    """
    while len(CALLBACKS) > outer:
        CALLBACKS.pop(outer)()


@disable
def enter(mode: Any) -> None:
    """Enter a mode outside of compiled code."""
    mode.__enter__()


@disable
def leave(mode: Any) -> None:
    """Leave a mode outside of compiled code."""
    mode.__exit__(None, None, None)
