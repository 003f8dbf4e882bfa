"""Forward and backward graphs, given the saved values.

``extract`` cuts the joint graph; ``narrow`` saves values in smaller dtypes that hold them exactly;
``rng_replay`` saves the generator's state instead of random numbers; ``check`` verifies any partition. The
folder imports ``joint``. Begin with ``extract``.
"""
