"""Kernels as Triton source.

``writer`` writes one kernel, ``products`` and ``attention`` the two special forms; ``tiles``,
``product_tiles`` and ``attention_tiles`` choose tile sizes; ``module`` joins the kernels of a graph. Nothing
here needs a GPU. Begin with ``writer``.
"""
