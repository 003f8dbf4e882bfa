"""Inference with frozen weights: values that depend on parameters alone are computed once.

``constants`` cuts a graph into a constant part and the rest; ``frozen`` calls both and detects changes.
``norms`` and ``packing`` rewrite the graph before the cut. Modules here import ``lower.node_queries``,
``lower.rewrites``, ``torch_compat`` and ``fxstack_interchange``. Begin with ``frozen.freeze``.
"""
