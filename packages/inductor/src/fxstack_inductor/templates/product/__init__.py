"""The template of matrix products: a loop over the depth with matrix instructions, then the operations on each element.

``candidates`` finds the products of a graph that can be kernels, ``rules`` lowers these to reductions, ``tiling`` divides
the loops, ``writer`` writes the text, ``cost`` decides between kernel and library. Begin with ``template``.
"""
