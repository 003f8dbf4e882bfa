"""The options of this package: one frozen record, no environment variables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class SavedTensorHooks(StrEnum):
    """What becomes of the saved-tensor hooks that are on around a call."""

    INLINE = "inline"
    """Traced for the tensors that the partitioner chose; into the forward's end and the backward's start."""
    INLINE_BEFORE_PARTITION = "inline_before_partition"
    """Traced into the joint graph, so that the partitioner sees what packing costs and saves."""
    EAGER = "eager"
    """Called on each saved tensor at run time."""


@dataclass(frozen=True, slots=True)
class AotOptions:
    """How ``aot`` traces and what its wrapper does at run time."""

    keep_inference_mutations: bool = True
    """Leave ``aten.copy_(input, value)`` nodes in inference graphs, for the compiler to do in place."""
    eager_backward_compile: bool = False
    """Compile the backward together with the forward instead of at the first backward."""
    check_output_strides: bool = True
    """Compare the strides of the first call's outputs with eager's, and restride from then on if they differ."""
    replay_views: bool = True
    """Return outputs that are views of intermediates as real views (``_is_view``, one shared storage)."""
    saved_tensor_hooks: SavedTensorHooks = SavedTensorHooks.INLINE
    """What becomes of hooks set by ``torch.autograd.graph.saved_tensors_hooks``; those that cannot be traced run in eager."""
    functional_random: bool = False
    """Make graphs that draw random numbers on CPU pure: they take the generator's state and return the next one."""
    verify: bool = False
    """Check every graph that is made, and what the partitioner returns, against the interchange format's rules."""
    whole_attention: tuple[str, ...] = ()
    """Types of devices on which ``flex_attention`` stays one operator, for a compiler that has kernels for it."""
    on_error: Callable[[Exception, Callable[..., Any], tuple[Any, ...]], Any] | None = None
    """Called with what a compiled graph (no backward) raised, the captured graph and its arguments; its result is the call's."""

    def __post_init__(self) -> None:
        """Accept ``saved_tensor_hooks`` as a word.

        Raises:
            ValueError: for a word that is none of ``SavedTensorHooks``.
        """
        try:
            mode = SavedTensorHooks(self.saved_tensor_hooks)
        except ValueError:
            known = ", ".join(repr(str(mode)) for mode in SavedTensorHooks)
            raise ValueError(
                f"saved_tensor_hooks is {self.saved_tensor_hooks!r}, must be one of {known}"
            ) from None
        object.__setattr__(self, "saved_tensor_hooks", mode)
