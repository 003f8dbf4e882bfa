"""Functions that are marked as not to be compiled, by us or by torch, and those of torch's own compiler.

Of the latter, those that mean something inside of compiled code are found by name: torch's compiler need not be loaded.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from fxstack_capture.breaks import graph_break

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

    from fxstack_capture.trace import Trace

_COMPILER_MODULES = ("torch._dynamo", "torch.compiler", "torch._inductor", "torch._compile")


def is_disabled(fn: FunctionType) -> bool:
    """Whether a call of ``fn`` ends the graph."""
    if fn.__dict__ and (
        fn.__dict__.get("_torchdynamo_disable") or fn.__dict__.get("_fxstack_disable")
    ):
        return True
    module = fn.__module__
    return type(module) is str and module.startswith(_COMPILER_MODULES)


def call_disabled(
    trace: Trace, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What such a function does in compiled code; most end the graph."""
    rule = _MEANINGS.get((fn.__module__, fn.__qualname__))
    if rule is None:
        raise graph_break("disabled", fn.__qualname__)
    return rule(trace, *args, **kwargs)


def _mark_static(trace: Trace, t: Any, index: Any = None) -> None:
    """``torch._dynamo.mark_static``: the sizes are the ones seen now."""
    if not isinstance(t, torch.Tensor):
        raise graph_break("disabled", "mark_static")
    if index is None:
        index = range(t.dim())
    for dim in (index,) if isinstance(index, int) else index:
        trace.torch.specialize(t.size(dim))


_MEANINGS: MappingProxyType[tuple[str, str], Callable[..., Any]] = MappingProxyType(
    {("torch._dynamo.decorators", "mark_static"): _mark_static}
)
