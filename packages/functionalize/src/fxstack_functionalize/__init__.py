"""Convert captured graphs to functional or joint forward-backward ATen graphs with eager's semantics.

Of the other packages this one imports ``fxstack_interchange`` alone. Private names of torch are in
``torch_compat``. Begin with ``aot``: ``tracing`` runs the captured graph, ``aliasing`` classifies its inputs
and outputs, ``metadata`` records the result, ``runtime`` builds the callable. ``hooks``, ``subclasses`` and
``disk`` add saved-tensor hooks, wrapper subclasses and the cache of compiled programs.
"""

from fxstack_functionalize.aot import aot, trace_inference, trace_joint
from fxstack_functionalize.errors import (
    CompilerContractError,
    FunctionalizeError,
    TraceFailedError,
    UnsupportedGraphError,
)
from fxstack_functionalize.options import AotOptions, SavedTensorHooks
from fxstack_functionalize.plain import aot_function, aot_module
from fxstack_functionalize.random.functional_random import with_random_state

__all__ = [
    "AotOptions",
    "CompilerContractError",
    "FunctionalizeError",
    "SavedTensorHooks",
    "TraceFailedError",
    "UnsupportedGraphError",
    "aot",
    "aot_function",
    "aot_module",
    "trace_inference",
    "trace_joint",
    "with_random_state",
]
