"""Captured graphs to functional and joint forward-backward ATen graphs, with eager semantics kept.

``aot`` holds the entry points for captured graphs, ``aot_function`` those for plain functions and modules.
``tracing`` makes the graphs, ``aliasing`` decides what is mutated and what shares memory, ``runtime`` calls
the compiled graphs. The package imports ``fxstack_interchange`` and no other stage. Begin with ``aot``.
"""

from fxstack_functionalize.aot import aot, trace_inference, trace_joint
from fxstack_functionalize.aot_function import aot_function, aot_module
from fxstack_functionalize.errors import (
    CompilerContractError,
    FunctionalizeError,
    TraceFailedError,
    UnsupportedGraphError,
)
from fxstack_functionalize.options import AotOptions, SavedTensorHooks
from fxstack_functionalize.random.functional_random import with_random_state
from fxstack_functionalize.regions.table import SharedRegion

__all__ = [
    "AotOptions",
    "CompilerContractError",
    "FunctionalizeError",
    "SavedTensorHooks",
    "SharedRegion",
    "TraceFailedError",
    "UnsupportedGraphError",
    "aot",
    "aot_function",
    "aot_module",
    "trace_inference",
    "trace_joint",
    "with_random_state",
]
