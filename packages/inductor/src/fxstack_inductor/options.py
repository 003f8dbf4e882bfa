"""Options of the code generator: one frozen record, with the environment read here and nowhere else."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import platformdirs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class InductorOptions:
    """What a compilation may depend on.

    ``eager_rounding``: round to bfloat16/float16 after every operator, as eager does, instead of only where a value
    is stored or cast. ``exact_math``: transcendental functions from libm, one element at a time, instead of libmvec's vectors
    (which are accurate to 4 ulp). ``max_kernel_buffers`` and ``max_kernel_ops`` bound fusion. ``grain`` is the
    number of elements under which a kernel stays on one thread. ``cache_dir`` and ``cache_limit`` (bytes) are those of the
    disk cache. ``compiler`` is a path or name; None looks for one. ``optimization`` is the compiler's level.
    ``target`` is "cpu" (C) or "cuda" (Triton, which on CPU tensors needs ``TRITON_INTERPRET=1``); None
    chooses by the devices of the graph's tensors. ``host``: "native" has programs on CPU run by C where this Python and
    torch allow it, "python" by generated Python. ``cuda_graphs``: record each compiled call on CUDA and replay it.
    ``templates``: matrix products on CUDA may be kernels of our own, where what is fused with them pays.
    ``autotune``: which ones, and their tile sizes, is measured on the device instead of predicted, and saved in ``cache_dir``.
    ``rerun_refused``: when an index is out of range, run the graph again by ATen's operators, which raise eager's error; else
    ``IndexOutOfRange`` is raised, for a caller that has the program that the graph was made from (not by boxed graphs).
    ``freezing``: in graphs on CPU without gradients, what follows from parameters and buffers alone is computed once, batch norms
    become part of convolutions, and matrices are packed for products that are faster so (measured); it is done again when a
    parameter's version or address has changed (writing through ``.data`` is not seen). Results round differently.
    ``raise_failures``: an exception that is a defect of this package (generated code that the compiler rejects, an assertion that
    fails, a lowering rule that raises) is raised, where otherwise ATen runs the graph or the operator after a warning.
    ``repro_dir``: a folder in which each graph on CPU leaves a script that runs alone (see ``write_repro``) at its first call.
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
"""Environment variables and the options they set."""


def options_from_environment(environ: Mapping[str, str] | None = None) -> InductorOptions:
    """The default options, changed by what the environment sets."""
    source = os.environ if environ is None else environ
    changes = {
        name: parse(source[variable]) for variable, (name, parse) in ENVIRONMENT.items() if variable in source
    }
    return InductorOptions(**changes)
