"""Text of kernels and of the host program.

``c`` and ``triton`` write kernels, ``host`` writes the program that launches them. Both read the loop-level
IR (``ir.kernel``) and change nothing in it; ``analysis``, ``index_text`` and ``index_width`` are what they
share. Begin with ``c.strategy``.
"""
