"""Graphs over wrapper subclasses: converted to graphs over the wrapped tensors, rewrapped at run time.

The folder may import ``runtime``, ``tracing`` and ``metadata``; ``aot`` calls it. Begin with ``compiling``.
``layout`` describes how a wrapper consists of plain tensors, ``desugar`` runs the graph on rebuilt wrappers,
``training`` is the autograd node between wrappers.
"""

from fxstack_functionalize.subclasses.compiling import Compiling, compile_wrapped

__all__ = ["Compiling", "compile_wrapped"]
