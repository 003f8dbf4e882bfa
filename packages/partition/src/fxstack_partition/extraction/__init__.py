"""Forward and backward graphs, given the saved values.

``passes`` has the passes in order, ``extract`` runs those behind the choice of saved values; ``merge`` removes
repeated computations; ``graphs`` builds the two graphs; ``check`` verifies any partition. The folder imports
``mincut``, ``ordering`` and ``joint``. Begin with ``passes``.
"""
