"""FX graphs to fused kernels: C for CPU, Triton for CUDA."""

from fxstack_inductor.c_target import Lowered
from fxstack_inductor.compile import compile_graph, lower
from fxstack_inductor.decompositions import decompositions
from fxstack_inductor.errors import (
    CompilerFailedError,
    InductorError,
    NoCompilerError,
    UnsupportedGraphError,
    VerificationError,
)
from fxstack_inductor.options import InductorOptions, options_from_environment

__all__ = [
    "CompilerFailedError",
    "InductorError",
    "InductorOptions",
    "Lowered",
    "NoCompilerError",
    "UnsupportedGraphError",
    "VerificationError",
    "compile_graph",
    "decompositions",
    "lower",
    "options_from_environment",
]
