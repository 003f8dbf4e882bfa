"""Which tensors share a kernel.

``inlining`` decides what is computed where it is read, ``groups`` merges the rest under named rules,
``loop_matching`` unifies loop spaces, ``precedence`` keeps the order of units, ``templates`` picks matrix
products for kernels of our own. Begin with ``groups``.
"""
