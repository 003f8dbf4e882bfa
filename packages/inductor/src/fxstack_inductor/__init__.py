"""FX graphs to fused kernels: C for CPU, Triton for CUDA.

``compile`` holds the entry points. A graph goes through ``lower`` (tensor-level IR), ``schedule`` (loop-level
kernels) and ``codegen`` (text); ``targets`` joins these for C and Triton, ``runtime`` builds and calls the
result. The package imports ``fxstack_interchange`` and no other stage. Begin with ``targets.c_target``.
"""

from fxstack_inductor.compile import compile_graph, lower
from fxstack_inductor.decompositions import decompositions
from fxstack_inductor.errors import (
    ArgumentError,
    CompilerFailedError,
    InductorError,
    NoCompilerError,
    ReproError,
    UnsupportedGraphError,
    VerificationError,
)
from fxstack_inductor.failures import Failure
from fxstack_inductor.options import InductorOptions, options_from_environment
from fxstack_inductor.repro.script import write_repro
from fxstack_inductor.targets.lowered_c import Lowered
from fxstack_inductor.timeline import MemoryTimeline, memory_timeline

__all__ = [
    "ArgumentError",
    "CompilerFailedError",
    "Failure",
    "InductorError",
    "InductorOptions",
    "Lowered",
    "MemoryTimeline",
    "NoCompilerError",
    "ReproError",
    "UnsupportedGraphError",
    "VerificationError",
    "compile_graph",
    "decompositions",
    "lower",
    "memory_timeline",
    "options_from_environment",
    "write_repro",
]
