"""Functions that are marked as not to be compiled, by us or by torch, and those of torch's own compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FunctionType

_COMPILER_MODULES = ("torch._dynamo", "torch.compiler", "torch._inductor", "torch._compile")


def is_disabled(fn: FunctionType) -> bool:
    """Whether a call of ``fn`` ends the graph."""
    if fn.__dict__ and (
        fn.__dict__.get("_torchdynamo_disable") or fn.__dict__.get("_fxstack_disable")
    ):
        return True
    module = fn.__module__
    return type(module) is str and module.startswith(_COMPILER_MODULES)
