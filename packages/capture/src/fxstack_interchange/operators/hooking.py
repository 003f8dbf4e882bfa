"""A node that registers a graph as a gradient hook of a tensor.

The hook replaces the gradient of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx.node import has_side_effect


@has_side_effect  # type: ignore[untyped-decorator]
def hook_gradient(tensor: torch.Tensor, hook: Callable[..., tuple[torch.Tensor]], *operands: object) -> None:
    """Call ``tensor.register_hook`` if ``tensor`` requires a gradient.

    ``hook`` takes the gradient and the ``operands``.
    """
    if tensor.requires_grad:
        tensor.register_hook(lambda gradient: hook(gradient, *operands)[0])
