"""Changes of an input that are not changes of its values: its size, strides, storage, or whether it has a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fxstack_functionalize.errors import UnsupportedGraphError

if TYPE_CHECKING:
    from fxstack_functionalize.inputs import CapturedInput
    from fxstack_functionalize.session import TracedInput


def refuse_metadata_mutation(spec: CapturedInput, traced: TracedInput, core: torch.Tensor) -> None:
    """Raise if the captured graph changed what cannot be carried back to the caller's tensor."""
    argument = traced.argument
    if traced.base is not None:
        _refuse_gradient_through_base(spec, argument)
        return
    metadata = torch._functionalize_has_metadata_mutation(core)
    moved = torch._functionalize_was_storage_changed(core)
    if metadata or moved or len(argument.shape) != spec.fake.dim() or _resized(spec, argument):
        raise UnsupportedGraphError(
            f"input {spec.name!r} has its size, strides or storage changed in place",
            why="only changes of an input's values can be carried back to the caller's tensor",
            fix="use the out-of-place form of the operator (x = x.t() instead of x.t_())",
        )
    became_leaf = argument.requires_grad and traced.leaf is None and argument.grad_fn is None
    if became_leaf or (traced.leaf is not None and not argument.requires_grad):
        raise UnsupportedGraphError(
            f"requires_grad_() or detach_() was called on input {spec.name!r}",
            why="whether an input has a gradient is decided before the compiled graph runs",
            fix="call it outside the compiled function",
        )


def _resized(spec: CapturedInput, argument: torch.Tensor) -> bool:
    """Whether a size differs; strides may, where a value was written back in another layout."""
    return any(
        type(now) is int and type(before) is int and now != before
        for now, before in zip(argument.shape, spec.fake.shape, strict=True)
    )


def _refuse_gradient_through_base(spec: CapturedInput, argument: torch.Tensor) -> None:
    if argument.requires_grad:
        raise UnsupportedGraphError(
            f"input {spec.name!r} shares memory with another input, and is changed by a value that has a gradient",
            why="the gradient cannot follow the shared memory",
            fix="pass tensors that do not overlap, or clone one of them",
        )
