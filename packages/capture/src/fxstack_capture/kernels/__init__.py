"""The program's own Triton kernels in graphs.

``launching`` makes a launch one node. ``writes`` finds the parameters that a kernel writes to, from the
kernel's TTIR. ``triton_side`` is the only module that imports Triton. The operators of the nodes are in
``fxstack_interchange.operators``. Begin with ``launching``.
"""
