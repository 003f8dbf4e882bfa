"""``nonstrict_trace``: calls that are in the graph as the operators that they come to, whatever their Python does.

A call is one node until the graph is traced by the stage behind capture. Arguments and results are trees of tensors and plain
values; classes that ``torch.utils._pytree`` knows are taken apart in front of the node and put together behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.registered import label_of
from fxstack_capture.torch_side.constants import is_constant

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxstack_capture.trace import Trace

_CONTEXTS = (str, int, float, type, type(None))


def as_operations(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of a function that ``nonstrict_trace`` was called with."""

    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, spec = trace.calls.call(pytree.tree_flatten, ((args, kwargs),), {})
        for leaf in leaves:
            if not (
                isinstance(leaf, torch.Tensor) or trace.torch.is_symbolic(leaf) or is_constant(leaf)
            ):
                raise _refusal(fn, f"an argument of {type(leaf).__qualname__}")
        return trace.torch.call(_on_leaves(fn, _real_spec(trace, fn, spec)), tuple(leaves), {})

    return rule


def _refusal(fn: object, what: str) -> BaseException:
    text = f"{label_of(fn)}, marked with nonstrict_trace, with {what} (register its class with torch.utils._pytree)"
    return graph_break("unsupported-call", text)


def _real_spec(trace: Trace, fn: object, spec: Any) -> Any:
    """The structure as ``torch.utils._pytree`` can use it when the trace is over. Raises GraphBreak."""
    world: Any = trace.world
    original = world.original_of(spec)
    if original is not spec:  # that of a leaf, which torch has but one of
        return original
    if not _is_plain_context(spec.context):
        raise _refusal(fn, "an argument whose pytree context holds other objects")
    children = [_real_spec(trace, fn, child) for child in spec.children()]
    return pytree.TreeSpec(spec.type, spec.context, children)


def _is_plain_context(context: Any) -> bool:
    if type(context) in (list, tuple):
        return all(map(_is_plain_context, context))
    return isinstance(context, _CONTEXTS)


def _on_leaves(fn: Callable[..., Any], spec: Any) -> Callable[..., Any]:
    def on_leaves(*leaves: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        return fn(*args, **kwargs)

    on_leaves.__name__ = getattr(fn, "__name__", "nonstrict")
    return on_leaves
