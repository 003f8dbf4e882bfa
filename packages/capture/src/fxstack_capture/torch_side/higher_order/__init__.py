"""Higher-order operators.

``control_flow`` and ``subgraphs`` make nodes with nested graphs for ``cond``, ``while_loop``, ``map`` and
``scan``. ``flex`` does the same for attention, and ``selection`` handles selective checkpoints.
``transforms`` runs the layers of ``torch.func`` over fakes. Begin with ``control_flow``.
"""
