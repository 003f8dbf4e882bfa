"""Operators that take functions.

``control_flow`` and ``subgraphs`` make ``cond``, ``while_loop``, ``map`` and ``scan`` nodes that hold graphs;
``flex`` does so for attention, ``selection`` for selective checkpoints; ``transforms`` runs ``torch.func``'s
layers for real over fakes. Begin with ``control_flow``.
"""
