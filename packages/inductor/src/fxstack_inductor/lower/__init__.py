"""Lowering: turn an FX graph of ATen calls into tensor-level IR (``ir.nodes``, ``ir.ordered``).

One registered rule lowers each operator or family of operators; an operator without a rule stays a call of
its ATen kernel. Subfolders hold the rules: ``elementwise``, ``indexing`` and ``reductions``. ``rewrites``
changes the graph before. ``host`` binds symbolic sizes and host numbers; ``decompositions`` has what earlier
stages apply. Modules here import ``ir``, ``errors``, ``options`` and ``fxstack_interchange``; they never
import ``schedule`` or ``codegen``. Begin with ``graph`` (the driver), then ``registry``, ``context`` and
``elementwise.pointwise``.
"""
