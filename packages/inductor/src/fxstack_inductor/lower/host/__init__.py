"""Numbers that the host computes, and where it finds sizes.

``symbols`` turns SymInts into index expressions, ``bindings`` says which inputs the host reads sizes from,
``host_numbers`` and ``scalars`` hand numbers to kernels. Begin with ``symbols``.
"""
