"""The command ``fxstack`` (also ``python -m fxstack``): one module for each command; ``main`` is the program."""
