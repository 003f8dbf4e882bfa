"""Users' own Triton kernels in graphs.

``launching`` makes a launch one node, ``writes`` reads off the intermediate code what a kernel writes to, and
``triton_side`` is the only module that imports Triton. The nodes' operators are in
``fxstack_interchange.operators``. Begin with ``launching``.
"""
