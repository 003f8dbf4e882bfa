"""Code generation: kernels as C or Triton text, and the host program that launches them.

``c`` and ``triton`` write kernels from the same loop-level IR; ``host`` writes the host program in Python and
in C. The C headers here are part of the generated C text. Modules at this level are shared by the targets.
The kernel writers import ``ir``, ``errors``, ``tiling`` and a few helpers of ``schedule``; ``host`` also imports
``lower``, ``schedule.plan`` and ``runtime``. Begin with ``c.strategy`` or ``triton.writer``.
"""
