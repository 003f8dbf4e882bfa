"""Inference with frozen weights.

What follows from parameters alone is computed once, and again when a parameter has changed. ``constants``
finds it, ``norms`` and ``packing`` rewrite the graph, ``frozen`` is the callable. Begin with ``frozen``.
"""
