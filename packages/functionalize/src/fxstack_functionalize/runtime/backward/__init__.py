"""The backward of a compiled training graph under autograd.

``saved`` keeps tensors as eager keeps them, also for results that are differentiated one after the other.
``backwards`` compiles a backward for each set of results that have no gradient. ``replay`` is the one fallback
for all other gradients: it runs the captured graph again in eager. ``nodes`` and ``edge_gradients`` give results
their own autograd nodes. Begin with ``saved``.
"""
