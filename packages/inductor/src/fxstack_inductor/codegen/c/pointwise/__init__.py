"""C text of kernels without inner loops.

``points`` has vectors along the last loop, ``tiles`` transposes operands that lie across the last loop, and ``interleaved``
does so for points of several neighbouring elements. ``unrolled`` writes out short inner loops, so that kernels with these
have none. Modules here import ``ir``, ``schedule.condition_splits`` and modules of ``codegen.c``. Begin with ``points``.
"""
