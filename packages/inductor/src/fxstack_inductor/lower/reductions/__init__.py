"""Lowering rules of reductions, and of compositions of reductions with elementwise work.

Sums and extremes, scans, softmax and normalisation layers, batch norm, pooling windows. Begin with
``reductions``.
"""
