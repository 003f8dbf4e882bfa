"""Scheduling: turn tensor-level IR into an ordered list of kernels and calls (``plan.Plan``).

``fusion`` groups tensors into loop nests, ``build`` writes a group as a kernel, ``loops`` transforms its
loops, ``memory`` places intermediate tensors in the arena. ``condition_splits`` splits loops at conditions.
Modules here import ``ir``, ``lower`` and ``options``; they never emit text. Begin with ``plan.plan``, then
``fusion.groups`` and ``build``.
"""
