"""Forward and backward graphs, given the saved values.

``passes`` has the passes in order, ``extract`` runs those behind the choice of saved values; ``graphs`` builds the
two graphs; ``narrow`` saves values in smaller dtypes that hold them exactly; ``rng_replay`` saves the generator's
state instead of random numbers; ``check`` verifies any partition. The folder imports ``joint``, ``mincut`` and
``budgets``. Begin with ``passes``.
"""
