"""The forward and backward that follow from a choice of saved values, before graphs are built.

``plan`` lists the nodes of both stages, ``order`` chooses an order with a low peak, and ``simulate`` computes the
memory of a training step.
The folder imports ``joint``. Begin with ``plan``.
"""
