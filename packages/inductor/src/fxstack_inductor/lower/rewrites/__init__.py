"""Rewrites of the graph of ATen calls, before its operators are lowered.

Each module has one rewrite, which returns the graph that it got or a changed copy. The passes in ``lower.passes`` call them.
Modules here import ``torch_compat`` and the small modules of ``lower``.
"""
