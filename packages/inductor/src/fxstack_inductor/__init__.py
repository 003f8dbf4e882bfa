"""Compile functional ATen graphs (FX) to fused kernels: C for CPU, Triton for CUDA.

The stages are ``lower`` (ATen to tensor-level IR), ``schedule`` (fusion, memory), ``codegen`` (text) and
``runtime`` (linking); ``ir`` holds the representations, and ``targets`` composes the stages. ``freezing``,
``autotune``, ``cost`` and ``repro`` are optional. The package imports torch and ``fxstack_interchange``.
Begin with ``compile.compile_graph``.
"""

from fxstack_inductor.compile import compile_graph, lower
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
from fxstack_inductor.lower.decompositions.table import decompositions
from fxstack_inductor.memory_timeline import MemoryTimeline, memory_timeline
from fxstack_inductor.options import InductorOptions, options_from_environment
from fxstack_inductor.repro.script import write_repro
from fxstack_inductor.targets.c.artifact import Lowered

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
