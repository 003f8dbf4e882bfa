"""Build the forward and backward graphs of a choice of saved values.

``passes`` lists the passes in order. ``extract`` runs the passes that follow the choice of saved values. ``merge``
removes repeated computations, ``graphs`` builds the two graphs, and ``check`` verifies partitions from outside. The
folder imports ``mincut``, ``ordering`` and ``joint``. Begin with ``passes``.
"""
