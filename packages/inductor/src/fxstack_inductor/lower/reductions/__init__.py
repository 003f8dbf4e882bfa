"""Lowering rules for reductions and for operators composed of reductions.

``reductions`` has sums, extremes, norms, variances and arg-reductions. ``normalisation`` and ``batches`` have
softmax and the normalisation layers, ``scans`` cumulative operators, ``windows`` pooling. ``split`` makes two
reductions of one for a GPU. Modules here import ``ir``, ``lower.context``, ``lower.registry``,
``lower.elementwise`` and ``lower.indexing``. Begin with ``reductions``, whose ``reduce`` and ``moments`` the
other modules use.
"""
