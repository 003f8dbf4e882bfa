"""Find wrapper subclasses: tensors of classes with ``__torch_dispatch__`` and ``__tensor_flatten__``."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from fxstack_functionalize.torch_compat import FakeTensor, FunctionalTensor, is_traceable_wrapper_subclass


def is_wrapper(value: object) -> bool:
    """Whether a value is a tensor of a class with ``__tensor_flatten__``."""
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, (FakeTensor, FunctionalTensor))
        and not value.is_nested  # nested tensors have symbols of their own as sizes
        and bool(is_traceable_wrapper_subclass(value))
    )


def makes_wrappers(module: GraphModule) -> bool:
    """Whether a node of a captured graph computes a wrapper, or is marked as making wrappers inside."""
    return any(
        is_wrapper(node.meta.get("val")) or getattr(node.target, "makes_wrappers", False)
        for node in module.graph.nodes
    )
