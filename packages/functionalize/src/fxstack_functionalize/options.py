"""The options of this package: one frozen record, no environment variables."""

from __future__ import annotations

from dataclasses import dataclass


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
