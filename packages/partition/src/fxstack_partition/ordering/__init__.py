"""The stages that follow from a choice of saved values, as numbers: their nodes, their order and their memory.

``plan`` lists the nodes of both stages, ``order`` reorders them, and ``simulate`` computes the memory of a step.
The folder imports ``joint``. Begin with ``plan``.
"""
