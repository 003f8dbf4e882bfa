"""Host-side values of a lowered graph: symbolic sizes, and numbers that the host computes.

The host (the Python or C function around the kernels) must know the value of every size symbol that a kernel
uses. Modules here import ``ir``, ``errors`` and the sibling modules ``lower.node_queries`` and
``lower.program``. Begin with ``symbols`` (sympy to ``Expr``), then ``bindings`` (the source of each symbol).
"""
