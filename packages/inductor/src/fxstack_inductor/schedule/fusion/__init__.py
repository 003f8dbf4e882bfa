"""Fusion: decide which tensors share one kernel, are inlined into readers, or are written in place.

``inlining`` chooses tensors to recompute at each use. ``groups`` merges the others into loop nests;
``loop_matching`` unifies loop variables and ``precedence`` prevents cycles. ``inplace`` lets kernels write
mutated inputs directly. ``templates`` chooses matrix products that become kernels of this package. Modules
here import ``ir``, ``lower``, ``cost``, ``options``, sibling modules of ``schedule``, and the Triton tiling
of products. Begin with ``groups.fuse``.
"""
