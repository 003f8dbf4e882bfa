"""The options of this package: one frozen record, no environment variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class SavedTensorHooks(StrEnum):
    """How a compiled graph applies the saved-tensor hooks that are active around a call."""

    INLINE = "inline"
    """Trace the hooks for the tensors that the partitioner saves: pack in forward, unpack in backward."""
    INLINE_BEFORE_PARTITION = "inline_before_partition"
    """Trace the hooks into the joint graph, so that the partitioner sees the cost and the gain of packing."""
    EAGER = "eager"
    """Call the hooks on each saved tensor at run time."""


@dataclass(frozen=True, slots=True)
class AotOptions:
    """How ``aot`` traces a graph, and how the callable behaves at run time."""

    keep_inference_mutations: bool = True
    """Keep ``aten.copy_(input, value)`` in inference graphs, so that the compiler can write in place."""
    eager_backward_compile: bool = False
    """Compile the backward together with the forward instead of at the first backward."""
    check_output_strides: bool = True
    """Compare output strides of the first call with eager's. If they differ, restride in all calls."""
    replay_views: bool = True
    """Return outputs that are views of intermediates as real views (``_is_view``, one shared storage)."""
    saved_tensor_hooks: SavedTensorHooks = SavedTensorHooks.INLINE
    """How to apply hooks of ``torch.autograd.graph.saved_tensors_hooks``. Untraceable hooks run in eager."""
    functional_random: bool = False
    """Make graphs with CPU random operators pure: the generator's state is an input and an output."""
    verify: bool = False
    """Check every traced graph and both graphs of the partitioner against the interchange format."""
    share_regions: bool = True
    """Trace, partition and compile equal parts of a graph once, for example the layers of a transformer."""
    whole_attention: tuple[str, ...] | None = None
    """Device types on which ``flex_attention`` stays one operator, for a compiler that has kernels for it.

    None: no device type here; ``fxstack.compile`` chooses the types for which inductor has kernels.
    """
    on_error: Callable[[Exception, Callable[..., Any], tuple[Any, ...]], Any] | None = None
    """Handler for exceptions of a compiled forward: gets the exception, the captured graph and the arguments.

    The call returns the result of the handler.
    """

    def __post_init__(self) -> None:
        """Convert a string ``saved_tensor_hooks`` to its enum member.

        Raises:
            ValueError: if the string is no value of ``SavedTensorHooks``.
        """
        try:
            mode = SavedTensorHooks(self.saved_tensor_hooks)
        except ValueError:
            choices = ", ".join(repr(str(mode)) for mode in SavedTensorHooks)
            raise ValueError(
                f"saved_tensor_hooks is {self.saved_tensor_hooks!r}, must be one of {choices}"
            ) from None
        object.__setattr__(self, "saved_tensor_hooks", mode)
