"""Operators that a trace replaces by others with the same results.

One module for each family: attention, recurrent layers, fused optimizers, masked assignments, and Python
kernels of torch that differ from eager. The folder imports ``tracing`` and ``fxstack_interchange.operators``.
Begin with ``substitutes``, the shortest.
"""
