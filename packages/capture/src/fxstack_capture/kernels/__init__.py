"""The program's own Triton kernels in graphs.

``launching`` records a launch as one node. ``writes`` analyses the TTIR of a kernel (Triton's intermediate
code) to find the parameters that the kernel writes to. ``triton_side`` is the only module that imports
Triton. The operators of the nodes are in ``fxstack_interchange.operators``. Begin with ``launching``.
"""
