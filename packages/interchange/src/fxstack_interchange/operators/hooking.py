"""A backward that can be traced, and a node that registers a graph as a gradient hook of a tensor.

The hook replaces the gradient of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx.node import has_side_effect

TRACEABLE_BACKWARD = "fxstack_traceable_backward"
"""The attribute from which a capture makes the backward of a compiled graph. The graph's ``autograd.Function`` has it.

The attribute is a function of an autograd node and of one bool for each gradient, which is true if the gradient is
missing. The function returns None, or a Python function of the node, its saved tensors and the gradients. This
function returns the gradients of the inputs.
"""


@has_side_effect  # type: ignore[untyped-decorator]
def hook_gradient(tensor: torch.Tensor, hook: Callable[..., tuple[torch.Tensor]], *operands: object) -> None:
    """Register ``hook`` as a gradient hook of ``tensor`` if ``tensor`` requires a gradient.

    ``hook`` takes the gradient and the ``operands``. Its first result replaces the gradient.
    """
    if tensor.requires_grad:
        tensor.register_hook(lambda gradient: hook(gradient, *operands)[0])
