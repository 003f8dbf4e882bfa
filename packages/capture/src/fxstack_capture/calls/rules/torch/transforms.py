"""Rules for ``torch.func``: functions in which the graph cannot break, and functions that get a replacement.

``torch_side/transforms`` implements the effect of the transforms on tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.calls.rules import RULES
from fxstack_capture.torch_compat import eager_transforms
from fxstack_capture.torch_compat import vmap_module as vmap
from fxstack_capture.trace.rule_registry import run_plainly
from fxstack_capture.trace.state import Args, Kwargs, Trace


@RULES.rule(
    vmap.vmap_impl,
    vmap.restore_vmap,
    eager_transforms.grad_and_value_impl,
    torch_compat.vjp_with_argnums,
    torch_compat.jvp_with_argnums,
)
def _interpret(trace: Trace, fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Interpret ``fn``. The graph cannot break inside, because layers of transforms are active there."""
    return trace.interp.call_function(fn, args, kwargs)


# These fill torch's own tables when they are first called: that is no effect of the program.
RULES.add(run_plainly, vmap.lazy_load_decompositions, torch_compat.maybe_load_decompositions)


@RULES.rule(torch_compat.functorch_gradients)
def _grad(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Interpret a replacement of torch's function, which would load torch's compiler."""
    return trace.interp.call_function(_gradients, args, kwargs)


def _gradients(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    grad_outputs: Sequence[torch.Tensor] | None = None,
    retain_graph: bool = False,
    create_graph: bool = True,
) -> tuple[torch.Tensor, ...]:
    """Do what torch's function does, without loading torch's compiler.

    The gradient is zero if no output depends on an input.
    """
    gradients_out = [None] * len(outputs) if grad_outputs is None else grad_outputs
    pairs = [(out, g) for out, g in zip(outputs, gradients_out) if out.requires_grad]  # noqa: B905
    if not pairs:
        return tuple(torch.zeros_like(x) for x in inputs)
    gradients = torch.autograd.grad(
        tuple(out for out, _ in pairs),
        inputs,
        None if grad_outputs is None else tuple(g for _, g in pairs),
        retain_graph=retain_graph,
        create_graph=create_graph,
        allow_unused=True,
    )
    return tuple(torch.zeros_like(x) if g is None else g for g, x in zip(gradients, inputs, strict=True))
