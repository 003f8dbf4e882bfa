"""Graphs over wrapper subclasses.

``layout`` describes a wrapper down to its plain tensors, ``desugar`` rewrites a graph over wrappers as a
graph over these tensors, ``compiling`` compiles the result and rebuilds wrappers at run time.
The folder imports ``tracing`` and ``runtime``. Begin with ``compiling``.
"""
