"""Lowering rules of operators that compute each element from elements at the same place.

``pointwise`` for arithmetic, ``activations`` for activation functions and gradients, ``powers`` for powers,
``creation`` for tensors that depend on no data. Begin with ``pointwise``.
"""
