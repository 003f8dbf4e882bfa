"""Options of the code generator: one frozen record; only this module reads the environment for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import platformdirs

from fxstack_interchange.user_warnings import warn_user


@dataclass(frozen=True, slots=True)
class InductorOptions:
    """All settings that a compilation may depend on.

    ``eager_rounding``: round to bfloat16/float16 after every operator, as eager does, instead of only at
    stores and casts. ``exact_math``: transcendental functions from libm, one element at a time, instead of
    libmvec's vectors (accurate to 4 ulp). ``max_kernel_buffers`` and ``max_kernel_ops`` limit fusion.
    ``grain``: a kernel with fewer elements runs on one thread. ``cache_dir`` and ``cache_limit`` (bytes)
    configure the disk cache. ``compiler`` is a path or name; None searches for one. ``optimization`` is the
    compiler's level. ``target`` is "cpu" (C) or "cuda" (Triton, which needs ``TRITON_INTERPRET=1`` for CPU
    tensors); None chooses by the devices of the graph's tensors. ``host``: "native" runs CPU host programs in
    C where this Python and torch allow it, "python" runs generated Python. ``cuda_graphs``: record each
    compiled call on CUDA and replay the recording. ``templates``: matrix products on CUDA may become kernels
    of this package, where fusion pays. ``autotune``: measure on the device which products become kernels, and
    their tile sizes, instead of predicting; save the choices in ``cache_dir``. ``rerun_refused``: after an
    index out of range, ATen's operators run the graph again and raise eager's error; otherwise
    ``IndexOutOfRange`` is raised, for a caller that has the original program (boxed graphs always rerun).
    ``freezing``: in CPU graphs without gradients, values that depend on parameters and buffers alone are
    computed once, batch norms become part of convolutions, and matrices are packed for products that are
    measured to be faster so. All this is redone when a parameter's version or address has changed (writes
    through ``.data`` are not seen). Results round differently. ``raise_failures``: raise an exception that is
    a defect of this package (rejected generated code, a failing assertion, a failing lowering rule);
    otherwise ATen runs the graph or the operator after a warning. ``repro_dir``: a folder in which each CPU
    graph writes a standalone script (see ``write_repro``) at its first call.
    """

    eager_rounding: bool = False
    exact_math: bool = False
    fuse: bool = True
    max_kernel_buffers: int = 48
    max_kernel_ops: int = 400
    grain: int = 16384
    cache_dir: Path = field(default_factory=lambda: Path(platformdirs.user_cache_dir("fxstack")) / "inductor")
    cache_limit: int = 2 << 30
    use_cache: bool = True
    compiler: str | None = None
    optimization: int = 3
    target: str | None = None
    host: str = "native"
    cuda_graphs: bool = False
    templates: bool = True
    autotune: bool = False
    verify: bool = True
    rerun_refused: bool = True
    freezing: bool = False
    raise_failures: bool = False
    repro_dir: str | Path | None = None


ENVIRONMENT: Mapping[str, tuple[str, Callable[[str], Any]]] = MappingProxyType(
    {
        "FXSTACK_INDUCTOR_CACHE_DIR": ("cache_dir", Path),
        "FXSTACK_INDUCTOR_CACHE_LIMIT": ("cache_limit", int),
        "FXSTACK_INDUCTOR_NO_CACHE": ("use_cache", lambda text: text in {"", "0"}),
        "FXSTACK_CC": ("compiler", str),
        "FXSTACK_RAISE_FAILURES": ("raise_failures", lambda text: text not in {"", "0"}),
        "FXSTACK_REPRO_DIR": ("repro_dir", Path),
    }
)
"""Environment variables and the options that they set."""


def options_from_environment(environ: Mapping[str, str] | None = None) -> InductorOptions:
    """Return the default options, changed by the environment."""
    source = os.environ if environ is None else environ
    changes = {}
    for variable, (name, parse) in ENVIRONMENT.items():
        try:
            if variable in source:
                changes[name] = parse(source[variable])
        except ValueError:
            text = f"fxstack: the environment variable {variable} is {source[variable][:100]!r}, which is not a whole number. "
            warn_user(f"{text}The default is used: set it to a number of bytes, or unset it.", UserWarning)
    return InductorOptions(**changes)
