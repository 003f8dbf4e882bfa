"""The two intermediate representations.

``nodes`` is the tensor-level IR that lowering makes, ``kernel`` the loop-level IR that code generators read.
Both index with ``expr``, polynomials over integers. ``verify`` checks, ``printer`` prints. The folder imports
only ``errors``. Begin with ``kernel``.
"""
