"""Fusion: decide which tensors share one kernel, are inlined into readers, or are written in place.

``inlining`` chooses tensors to recompute at each use. ``groups`` merges the others into loop nests;
``loop_matching`` unifies loop variables and ``precedence`` prevents cycles. ``inplace`` lets kernels write
mutated inputs directly. Modules here import ``ir``, ``lower``, ``options`` and sibling modules of
``schedule``. Begin with ``groups.fuse``.
"""
