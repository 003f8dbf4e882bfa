"""From ATen calls to tensor-level IR: one registered rule for each operator or family.

``graph`` lowers node by node; ``registry`` finds the rule; ``context`` is what a rule works with. Rules stand
in ``elementwise``, ``indexing`` and ``reductions``; what has no rule calls the ATen kernel. The folder
imports ``ir``. Begin with ``elementwise.pointwise``.
"""
