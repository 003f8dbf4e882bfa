"""Options of the code generator: one frozen record; only this module reads the environment for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import platformdirs

from fxstack_interchange.environment import Variable, read_environment


@dataclass(frozen=True, slots=True)
class InductorOptions:
    """All settings that a compilation may depend on."""

    eager_rounding: bool = False
    """Round to bfloat16 and float16 after every operator, as eager does, instead of only at stores and casts."""
    exact_math: bool = False
    """Compute transcendental functions by libm, one element at a time, not by libmvec (accurate to 4 ulp)."""
    fuse: bool = True
    """Fuse operators into common kernels."""
    max_kernel_buffers: int = 48
    """Largest number of buffers of a fused kernel."""
    max_kernel_ops: int = 400
    """Largest number of operations of a fused kernel."""
    grain: int = 16384
    """A kernel with fewer elements runs on one thread."""
    cache_dir: Path = field(default_factory=lambda: Path(platformdirs.user_cache_dir("fxstack")) / "inductor")
    """Folder of the cache on disk."""
    cache_limit: int = 2 << 30
    """Largest size of the cache on disk in bytes."""
    keep_memory: bool = True
    """Keep the memory of intermediate tensors on the CPU for the next call; False: only that of small ones.

    It adds to the peak of a program that holds other tensors in between: ``fxstack.compile`` keeps only small ones in training.
    """
    use_cache: bool = True
    """Keep compiled kernels and programs on disk."""
    compiler: str | None = None
    """Path or name of the C compiler; None: the first one on PATH."""
    optimization: int = 3
    """Optimisation level of the C compiler."""
    target: str | None = None
    """"cpu" (C) or "cuda" (Triton; CPU tensors need TRITON_INTERPRET=1); None: by the devices of the tensors."""
    host: str = "native"
    """"native": host programs in C where this Python and torch allow it; "python": generated Python."""
    cuda_graphs: bool = False
    """Record each compiled call on CUDA, and replay the recording."""
    templates: bool = True
    """Matrix products on CUDA may become kernels of this package, where fusion pays."""
    channels_last: bool = True
    """In graphs without gradients, run convolutions (on CUDA, of half precision) in channels-last layout, where this needs few
    copies."""
    autotune: bool = False
    """Measure on the device which products become kernels, and their tile sizes, instead of predicting.

    The choices are saved in ``cache_dir``.
    """
    dropout: str = "compared"
    """Dropout on CUDA: "compared", "generated" or "aten".

    "compared": generated kernels draw eager's numbers, after one comparison for each device with the numbers that torch
    draws on it. If these differ, ATen's kernel draws, and a warning says so. "generated": without the comparison, for
    simulated devices that compute nothing. "aten": ATen's kernel draws.
    """
    verify: bool = True
    """Check the invariants of kernels after each pass over their loops."""
    rerun_refused: bool = True
    """After an index out of range, run the graph again by ATen's operators, which raise eager's error.

    False: raise ``IndexOutOfRange``, for a caller that has the original program (boxed graphs always rerun).
    """
    freezing: bool = False
    """In CPU graphs without gradients, compute once the values that depend only on parameters and buffers.

    Batch norms become part of convolutions, whose images are laid out channels last (``channels_last``) and whose weights
    are packed; matrices are packed for products that are faster with packed matrices, by measurement. All this is done
    again when a parameter's version or address has changed (writes through ``.data`` are not seen). Results round
    differently.
    """
    nan_asserts: bool = False
    """Raise AssertionError if an input of a CPU graph, or a tensor that a kernel stores, has NaN or infinite elements.

    The host program is Python. Intermediate results that share one block of memory are not checked.
    """
    raise_failures: bool = False
    """Raise exceptions that are defects of this package, instead of a warning and a run of the graph by ATen.

    Such defects are rejected generated code, a failing assertion and a failing lowering rule.
    """
    repro_dir: str | Path | None = None
    """Folder in which each CPU graph writes a standalone script at its first call (see ``write_repro``)."""


def _is_on(text: str) -> bool:
    return text not in {"", "0"}


ENVIRONMENT: Final = (
    Variable("FXSTACK_INDUCTOR_CACHE_DIR", "cache_dir", Path),
    Variable("FXSTACK_INDUCTOR_CACHE_LIMIT", "cache_limit", int, "a number of bytes"),
    Variable("FXSTACK_INDUCTOR_NO_CACHE", "use_cache", lambda text: not _is_on(text)),
    Variable("FXSTACK_CC", "compiler", str),
    Variable("FXSTACK_DROPOUT", "dropout", str),
    Variable("FXSTACK_RAISE_FAILURES", "raise_failures", _is_on),
    Variable("FXSTACK_REPRO_DIR", "repro_dir", Path),
)
"""Environment variables that set options."""


def options_from_environment(environ: Mapping[str, str] | None = None) -> InductorOptions:
    """Return the default options, changed by the variables in ``environ`` (None: the environment of this process)."""
    return InductorOptions(**read_environment(ENVIRONMENT, environ))
