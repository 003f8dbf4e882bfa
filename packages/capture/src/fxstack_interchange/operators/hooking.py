"""A node that hangs a graph on a tensor as its hook: the gradient that is handed on is what the graph makes of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx.node import has_side_effect


@has_side_effect  # type: ignore[untyped-decorator]
def hook_gradient(tensor: torch.Tensor, hook: Callable[..., tuple[torch.Tensor]], *operands: object) -> None:
    """``tensor.register_hook``, where ``tensor`` has a gradient; ``hook`` takes that and the ``operands``."""
    if tensor.requires_grad:
        tensor.register_hook(lambda gradient: hook(gradient, *operands)[0])
