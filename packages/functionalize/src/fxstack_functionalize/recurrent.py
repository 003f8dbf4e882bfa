"""Recurrent layers in training: traced step by step rather than as oneDNN's layer.

oneDNN's layer keeps the workspace that its backward needs only where grad mode is on, and compiled forwards
run with grad mode off.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_LAYERS = frozenset({torch.lstm, torch.ops.aten.lstm.input, torch.ops.aten.lstm.data})


@contextmanager
def steps_of(target: Any) -> Iterator[None]:
    """Around a call of ``target``: a recurrent layer that may need a backward runs without oneDNN."""
    if target not in _LAYERS or not torch.is_grad_enabled():
        yield
        return
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)
