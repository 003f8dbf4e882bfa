"""A backward that can be traced, and a node that registers a graph as a gradient hook of a tensor.

The hook replaces the gradient of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx.node import has_side_effect

TRACEABLE_BACKWARD = "fxstack_traceable_backward"
"""The attribute of the ``autograd.Function`` of a compiled graph from which a capture makes its backward.

It is a function of an autograd node and of one bool for each gradient (whether it is missing). It returns a Python
function of the node, its saved tensors and the gradients, which returns the gradients of the inputs; or None.
"""


@has_side_effect  # type: ignore[untyped-decorator]
def hook_gradient(tensor: torch.Tensor, hook: Callable[..., tuple[torch.Tensor]], *operands: object) -> None:
    """Call ``tensor.register_hook`` if ``tensor`` requires a gradient.

    ``hook`` takes the gradient and the ``operands``.
    """
    if tensor.requires_grad:
        tensor.register_hook(lambda gradient: hook(gradient, *operands)[0])
